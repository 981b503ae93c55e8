package redisengine_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A keptStore is one whose client's connections are kept.
type keptStore struct {
	*redisengine.Store
	dials atomic.Int64
}

func kept(t *testing.T, addr string, config *tls.Config) *keptStore {
	t.Helper()
	options := &redis.Options{
		Addr: addr, TLSConfig: config, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		ReadTimeout: time.Minute, PoolSize: 4,
	}
	s, dial := new(keptStore), redis.NewDialer(options)
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.dials.Add(1)
		return dial(ctx, network, addr)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisengine.New(client, redisengine.Options{Timeout: time.Minute}) // each call has a time of its own
	if err != nil {
		t.Fatal(err)
	}
	if !store.Keeps() {
		t.Fatal("it keeps nothing")
	}
	s.Store = store
	return s
}

var keptLimit = weir.PerDay(100).MustCompile()

func keptAct(cost int64) *weir.Act {
	return storetest.NewAct(weir.Charge{Key: "k", Limit: keptLimit, Cost: cost})
}

// freeze stops a server and returns once it has stopped.
func freeze(r *testserver.Redis) {
	r.Pause()
	time.Sleep(10 * time.Millisecond) // a signal takes its time
}

// pending is what waits for the outcome of an act whose reply is late.
func pending(t *testing.T, a *weir.Act) acts.Pending {
	t.Helper()
	var late acts.Pending
	if !errors.Is(a.Err, weir.ErrAmbiguous) || !errors.As(a.Err, &late) {
		t.Fatalf("no outcome will come: %v", a.Err)
	}
	return late
}

// outcome waits for it.
func outcome(t *testing.T, late acts.Pending) *weir.Act {
	t.Helper()
	come := make(chan *weir.Act, 1)
	late.Then(func(a *weir.Act) { come <- a })
	select {
	case a := <-come:
		return a
	case <-time.After(20 * time.Second):
		t.Fatal("no outcome has come")
	}
	return nil
}

// TestLateReplies: a call that ends before its reply came has its outcome once it comes.
func TestLateReplies(t *testing.T) {
	t.Parallel()
	secured, config := certificates(t)
	for name, start := range map[string]func() (*testserver.Redis, string, *tls.Config){
		"plain": func() (*testserver.Redis, string, *tls.Config) {
			r := testserver.StartRedis(t)
			return r, r.Addr(), nil
		},
		"TLS": func() (*testserver.Redis, string, *tls.Config) {
			r := testserver.Spec{TLS: secured}.Redis(t)
			return r, strings.TrimPrefix(r.TLSURL(), "rediss://"), config
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, addr, config := start()
			store := kept(t, addr, config)
			if first := keptAct(1); true {
				if store.Take(t.Context(), []*weir.Act{first}); first.Err != nil {
					t.Fatal(first.Err)
				}
			}
			for range 2 {
				a, b := keptAct(1), keptAct(1)
				a.Decisions[0], b.Decisions[0] = weir.Decision{}, weir.Decision{}
				takeOne(store, "known") // on a connection
				freeze(r)
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				store.Take(ctx, []*weir.Act{a, b})
				cancel()
				first, second := pending(t, a), pending(t, b)
				r.Resume()
				for a, late := range map[*weir.Act]acts.Pending{a: first, b: second} {
					if got := outcome(t, late); got != a || got.Err != nil || !got.Allowed() || got.Decisions[0].Source != acts.SourceStore {
						t.Errorf("%+v, %v", got.Decisions, got.Err)
					}
				}
			}
			if n := store.dials.Load(); n > 3 {
				t.Errorf("%d connections were made for three calls, two of which lost theirs", n)
			}
			freeze(r)
			unsent := keptAct(1)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			store.Take(ctx, []*weir.Act{unsent})
			r.Resume()
			if late := acts.Pending(nil); !errors.Is(unsent.Err, weir.ErrNotApplied) || errors.Is(unsent.Err, weir.ErrAmbiguous) || errors.As(unsent.Err, &late) {
				t.Errorf("on a new connection that is not greeted: %v", unsent.Err)
			}
			look := keptAct(0)
			if store.Take(t.Context(), []*weir.Act{look}); look.Err != nil || look.Decisions[0].Remaining != 95 {
				t.Errorf("%+v, %v", look.Decisions, look.Err)
			}
		})
	}
}

// overtaken has the call of an act end while the server stands still, and returns what waits
// for its outcome.
func overtaken(t *testing.T, r *testserver.Redis, store *keptStore) acts.Pending {
	t.Helper()
	freeze(r)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a := keptAct(1)
	store.Take(ctx, []*weir.Act{a})
	return pending(t, a)
}

// TestLateReplyThatNeverComes: the connection is lost meanwhile.
func TestLateReplyThatNeverComes(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t)
	store := kept(t, r.Addr(), nil)
	takeOne(store, "known")
	wait := overtaken(t, r, store)
	r.Kill()
	if got := outcome(t, wait); !errors.Is(got.Err, weir.ErrAmbiguous) {
		t.Errorf("%+v, %v", got.Decisions, got.Err)
	}
}

// TestLateRefusal: a late error of Redis means what it means in time. Only NOSCRIPT does not:
// no caller is left that could send the text.
func TestLateRefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		late    bool
	}{
		"no memory": {[]string{"CONFIG", "SET", "maxmemory", "1"}, false},
		"no script": {[]string{"SCRIPT", "FLUSH"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testserver.StartRedis(t)
			store := kept(t, r.Addr(), nil)
			takeOne(store, "known")
			if _, err := r.Do(c.command...); err != nil {
				t.Fatal(err)
			}
			wait := overtaken(t, r, store)
			r.Resume()
			if got := outcome(t, wait); !errors.Is(got.Err, weir.ErrNotApplied) || errors.Is(got.Err, context.DeadlineExceeded) != c.late {
				t.Errorf("%+v, %v", got.Decisions, got.Err)
			}
		})
	}
}

// TestPartialReply: a reply that began to come and broke off is lost at once.
func TestPartialReply(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t)
	var cut atomic.Bool
	proxy := testserver.StartProxy(t, r.Addr(), func([]byte) testserver.Fault {
		if cut.Load() {
			return testserver.Cut
		}
		return testserver.Pass
	})
	store := kept(t, proxy.Addr(), nil)
	takeOne(store, "known")
	cut.Store(true)
	for range 5 {
		a := keptAct(1)
		store.Take(t.Context(), []*weir.Act{a})
		if late := acts.Pending(nil); !errors.Is(a.Err, weir.ErrAmbiguous) || errors.As(a.Err, &late) {
			t.Errorf("%v", a.Err)
		}
		cut.Store(false)
		takeOne(store, "known")
		cut.Store(true)
	}
}

// certificates makes a certificate for 127.0.0.1 that signs itself.
func certificates(t *testing.T) (testserver.TLS, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := testserver.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "cert.pem")}
	for name, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return files, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, RootCAs: known}
}
