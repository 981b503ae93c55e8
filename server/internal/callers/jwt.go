package callers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
)

const (
	// maxJWT is the size of the largest token, in bytes.
	maxJWT = 8 << 10
	// jwtLeeway is how far the clocks of an issuer and of this host may be apart.
	jwtLeeway = 30 * time.Second
	// keysWait is how long a token waits for its key to be read.
	keysWait = 2 * time.Second
)

// jwtAlgorithms are those that a token may be signed with. All have a public key.
var jwtAlgorithms = []string{"RS256", "ES256", "EdDSA"}

// JWTOptions are what [NewJWT] needs. All are required but Insecure and Logger.
type JWTOptions struct {
	// Keys is the file or the URL of the issuer's keys, a JWK set.
	Keys string
	// Issuer and Audience are those that a token is of and for.
	Issuer, Audience string
	// Labels say which claim has which label, as user=sub,team=dept.
	Labels string
	// Insecure takes http:// URLs of other hosts.
	Insecure bool
	// Logger is told of changes and failures. Nil: nothing is logged.
	Logger *slog.Logger
}

// JWT knows callers by the signed tokens of an issuer. It is safe for concurrent use and starts
// nothing: call [JWT.Refresh]. A nil *JWT knows nobody.
type JWT struct {
	options JWTOptions
	labels  []Source
	parser  *jwt.Parser
	keys    keySource
}

// A keySource has the keys of an issuer.
type keySource interface {
	// get returns the keys, or why there are none.
	get() (*keySet, error)
	// await waits for a reading that may bring a new key, if there is one to wait for.
	await(context.Context)
	// state returns why the last reading failed, and until when the keys in force are.
	state() (until time.Time, err error)
	refresh(context.Context)
}

// NewJWT returns nil if no option is given. It reads the keys if they are in a file. The error is
// a [*weir.InvalidError], or that of the file.
func NewJWT(o JWTOptions) (*JWT, error) {
	given := []struct{ field, value, want string }{
		{"jwt keys", o.Keys, "the file or the https:// URL of the issuer's keys"},
		{"jwt issuer", o.Issuer, "the iss of its tokens"},
		{"jwt audience", o.Audience, "the aud of its tokens"},
		{"jwt label", o.Labels, "the labels of callers, such as user=sub,team=dept"},
	}
	some := slices.IndexFunc(given, func(g struct{ field, value, want string }) bool { return g.value != "" })
	if some < 0 {
		return nil, nil
	}
	for _, g := range given {
		if g.value == "" {
			return nil, &weir.InvalidError{Field: g.field, Value: "none", Want: g.want + ", beside --" + strings.ReplaceAll(given[some].field, " ", "-")}
		}
	}
	j := &JWT{options: o}
	if j.options.Logger == nil {
		j.options.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if j.labels, err = ParseSources("jwt label", o.Labels); err != nil {
		return nil, err
	}
	j.parser = jwt.NewParser(jwt.WithValidMethods(jwtAlgorithms), jwt.WithIssuer(o.Issuer), jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(jwtLeeway), jwt.WithStrictDecoding())
	if !strings.Contains(o.Keys, "://") {
		j.keys, err = newFileKeys(o.Keys, j.options.Logger)
		return j, err
	}
	u, err := url.Parse(o.Keys)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, &weir.InvalidError{Field: "jwt keys", Value: "no URL, or one with a password", Want: given[0].want}
	}
	if u.Scheme == "http" && !o.Insecure && !thisHost(u.Hostname()) {
		return nil, &weir.InvalidError{Field: "jwt keys", Value: strconv.Quote(o.Keys), Want: "https://" + u.Host + u.Path + ", or --insecure-token: others could answer in its place"}
	}
	j.keys = newRemoteKeys(u.String(), http.DefaultTransport, j.options.Logger)
	return j, nil
}

// thisHost reports whether only this machine has a host name.
func thisHost(name string) bool {
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

// HasLabel reports whether a claim has a label of that key.
func (j *JWT) HasLabel(key string) bool { return j != nil && hasLabel(j.labels, key) }

// Refresh keeps the keys current until ctx ends. Call it once.
func (j *JWT) Refresh(ctx context.Context) { j.keys.refresh(ctx) }

// State returns why the keys could not be read last, nil if they could. Tokens are checked with
// the keys in force until the time, which is zero if there are none.
func (j *JWT) State() (until time.Time, err error) { return j.keys.state() }

// labelsOf returns the labels in a token. The error is a [*RefusedError], which repeats nothing
// of the token.
func (j *JWT) labelsOf(token string) ([]Label, error) {
	if len(token) > maxJWT {
		return nil, refusedToken(fmt.Sprintf("the token is too long: want at most %d bytes", maxJWT))
	}
	claims, err := j.read(token)
	if errors.Is(err, jwkset.ErrKeyNotFound) {
		ctx, cancel := context.WithTimeout(context.Background(), keysWait)
		defer cancel()
		j.keys.await(ctx)
		claims, err = j.read(token)
	}
	switch {
	case errors.Is(err, jwkset.ErrKeyNotFound):
		return nil, refusedToken("no key of the issuer has the token's kid: want one of its JWK set")
	case err != nil:
		return nil, err
	}
	all := make([]Label, len(j.labels))
	for i, s := range j.labels {
		value, _ := claims[s.From].(string)
		if !isLabel(value) {
			return nil, refusedToken(fmt.Sprintf("the claim %q of the token is no label: want %s", s.From, wantLabel))
		}
		all[i] = Label{s.Label, value}
	}
	return all, nil
}

func refusedToken(message string) *RefusedError {
	return &RefusedError{http.StatusUnauthorized, message}
}

var errNoKID = errors.New("callers: no kid")

// read returns the claims of a token that is good. The error is a [*RefusedError], or wraps
// [jwkset.ErrKeyNotFound].
func (j *JWT) read(text string) (jwt.MapClaims, error) {
	keys, err := j.keys.get()
	if err != nil {
		return nil, refusedToken("tokens cannot be checked: " + err.Error())
	}
	claims := jwt.MapClaims{}
	token, err := j.parser.ParseWithClaims(text, claims, keys.of)
	switch {
	case err == nil:
		return claims, nil
	case errors.Is(err, jwkset.ErrKeyNotFound):
		return nil, err
	case errors.Is(err, jwt.ErrTokenMalformed), token == nil:
		return nil, refusedToken("the token is no JWT: want three parts in base64url with dots between them")
	case token.Method == nil || !slices.Contains(jwtAlgorithms, token.Method.Alg()):
		return nil, refusedToken("the token's algorithm is not taken: want " + strings.Join(jwtAlgorithms, ", "))
	case errors.Is(err, errNoKID):
		return nil, refusedToken("the token names no key: want a kid in its header")
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return nil, refusedToken("the token's key is not one for its algorithm: want the alg of the key")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, refusedToken("the token's signature is wrong: want one by the key that it names")
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, refusedToken("the token has expired: want an exp that is not over")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return nil, refusedToken("the token is not valid yet: want an nbf that has come")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return nil, refusedToken(fmt.Sprintf("the token is of another issuer: want the iss %q", j.options.Issuer))
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return nil, refusedToken(fmt.Sprintf("the token is for another audience: want the aud %q", j.options.Audience))
	}
	return nil, refusedToken("the token lacks a claim, or has one of another type: want exp, iss and aud")
}
