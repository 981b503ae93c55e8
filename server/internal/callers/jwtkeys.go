package callers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
)

const (
	// maxKeys is the size of the largest JWK set, in bytes.
	maxKeys = 1 << 20
	// keysEvery is the time between two readings, and keysPause the least, after a failure or
	// for a key that is not known.
	keysEvery = time.Hour
	keysPause = time.Minute
	// keysHold is how long keys are in force after they were read.
	keysHold    = 24 * time.Hour
	keysTimeout = 10 * time.Second
)

// A keySet is the keys of a JWK set. It is immutable.
type keySet struct{ find keyfunc.Keyfunc }

// newKeySet reads a JWK set.
func newKeySet(text []byte) (*keySet, error) {
	if len(text) > maxKeys {
		return nil, fmt.Errorf("the JWK set has more than %d bytes", maxKeys)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(text, &set) != nil {
		return nil, errors.New("no JWK set: want JSON with a list of keys")
	}
	store, some := jwkset.NewMemoryStorage(), false
	for _, raw := range set.Keys {
		// A key of a kind that is not known is not for us.
		key, err := jwkset.NewJWKFromRawJSON(raw, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		if m := key.Marshal(); err != nil || m.KID == "" || m.KTY == jwkset.KtyOct {
			continue
		}
		if err := store.KeyWrite(context.Background(), key); err != nil {
			return nil, err
		}
		some = true
	}
	if !some {
		return nil, errors.New("a JWK set without keys of a kind that is known: want RSA, EC or OKP, each with a kid")
	}
	find, err := keyfunc.New(keyfunc.Options{Storage: store, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""}})
	if err != nil {
		return nil, err
	}
	return &keySet{find}, nil
}

// of returns the key of a token. A token without a kid would be tried with all of them.
func (s *keySet) of(token *jwt.Token) (any, error) {
	if kid, _ := token.Header["kid"].(string); kid == "" {
		return nil, errNoKID
	}
	return s.find.Keyfunc(token)
}

// fileKeys are those in a file, which is read again when it changes.
type fileKeys struct{ watched watched[*keySet] }

func newFileKeys(file string, logger *slog.Logger) (*fileKeys, error) {
	k := &fileKeys{watched[*keySet]{setting: "jwt keys", file: file, most: maxKeys, logger: logger, parse: func(text []byte) (*keySet, error) {
		set, err := newKeySet(text)
		if err != nil {
			return nil, &weir.InvalidError{Field: "jwt keys", Value: strconv.Quote(file), Want: "a file with a JWK set: " + err.Error()}
		}
		return set, nil
	}}}
	return k, k.watched.open()
}

func (k *fileKeys) get() (*keySet, error)       { return k.watched.get(), nil }
func (k *fileKeys) await(context.Context)       {}
func (k *fileKeys) state() (time.Time, error)   { return time.Time{}, nil }
func (k *fileKeys) refresh(ctx context.Context) { k.watched.refresh(ctx) }

// remoteKeys are those at a URL. One goroutine reads them.
type remoteKeys struct {
	url    string
	client http.Client
	logger *slog.Logger
	wake   chan struct{}

	mu    sync.Mutex    // guards the fields below; never held while waiting
	known *keySet       // nil before the first
	read  time.Time     // of known
	tried time.Time     // the end of the last reading, good or not
	err   error         // of it
	round chan struct{} // closed at the end of the reading that was asked for; nil if none was
}

func newRemoteKeys(url string, transport http.RoundTripper, logger *slog.Logger) *remoteKeys {
	return &remoteKeys{url: url, logger: logger, wake: make(chan struct{}, 1), client: http.Client{
		Transport: transport, Timeout: keysTimeout,
		// A redirect could lead to another host, or out of TLS.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// errKeysUnknown and errKeysOld are why tokens cannot be checked, for everybody.
var (
	errKeysUnknown = errors.New("the keys of the issuer are not known yet")
	errKeysOld     = errors.New("the keys of the issuer could not be read for 24 hours")
)

func (k *remoteKeys) get() (*keySet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.known == nil:
		return nil, errKeysUnknown
	case time.Since(k.read) >= keysHold:
		return nil, errKeysOld
	}
	return k.known, nil
}

func (k *remoteKeys) state() (time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.known != nil:
		return k.read.Add(keysHold), k.err
	case k.err == nil:
		return time.Time{}, errKeysUnknown
	}
	return time.Time{}, k.err
}

func (k *remoteKeys) await(ctx context.Context) {
	read := k.ask()
	if read == nil {
		return
	}
	select {
	case <-read:
	case <-ctx.Done():
	}
}

// ask asks for a reading and returns a channel that is closed at its end; nil if the last one
// ended a moment ago.
func (k *remoteKeys) ask() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round == nil {
		if k.recent() {
			return nil
		}
		k.round = make(chan struct{})
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return k.round
}

// recent reports whether the last reading ended a moment ago. k.mu must be held.
func (k *remoteKeys) recent() bool { return !k.tried.IsZero() && time.Since(k.tried) < keysPause }

// refresh reads the keys until ctx ends: each hour, a minute after a failure, and when asked.
func (k *remoteKeys) refresh(ctx context.Context) {
	for {
		pause := k.turn(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// turn reads the keys, unless they were read a moment ago, and returns when to do so again.
func (k *remoteKeys) turn(ctx context.Context) time.Duration {
	k.mu.Lock()
	recent := k.recent()
	k.mu.Unlock()
	var set *keySet
	var err error
	if !recent {
		set, err = k.fetch(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != nil {
		close(k.round)
		k.round = nil
	}
	if !recent && ctx.Err() == nil {
		k.note(set, err)
	}
	if k.err != nil {
		return keysPause
	}
	return max(keysPause, keysEvery-time.Since(k.read))
}

// note puts keys in force, or notes why there are no new ones. k.mu must be held.
func (k *remoteKeys) note(set *keySet, err error) {
	before := k.err
	k.tried, k.err = time.Now(), err
	switch {
	case err == nil:
		if before != nil || k.known == nil {
			k.logger.Info("the keys of the issuer were read", "jwt_keys", k.url)
		}
		k.known, k.read = set, k.tried
	case before == nil || before.Error() != err.Error():
		k.logger.Error("the keys of the issuer cannot be read; those in force stay for 24 hours", "jwt_keys", k.url, "error", err)
	}
}

// fetch reads the keys.
func (k *remoteKeys) fetch(ctx context.Context) (*keySet, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the status is %d: want 200", answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxKeys+1))
	if err != nil {
		return nil, err
	}
	return newKeySet(text)
}
