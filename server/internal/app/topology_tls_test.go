package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/store"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A secured store is one that wants to know who comes: by a certificate where it
// speaks TLS, and by a user's password.
type secured struct {
	url     string // without a user
	servers []*testserver.Redis
	// sentinels have a user of their own.
	sentinels []*testserver.Redis
	byTLS     bool
}

// A busy machine is neither a wrong password nor a wrong certificate.
const (
	patientTimeout = 4 * time.Second
	patientClient  = "?dial_timeout=4s&read_timeout=4s&write_timeout=4s&pool_timeout=4s"
)

const storeUser, storePassword, sentinelPassword = "weir", "the%/store's", "the/sentinels'"

// guard makes the user on all servers.
func (s *secured) guard(t *testing.T) {
	t.Helper()
	for password, servers := range map[string][]*testserver.Redis{storePassword: s.servers, sentinelPassword: s.sentinels} {
		for _, r := range servers {
			if _, err := r.Do("ACL", "SETUSER", storeUser, "on", ">"+password, "~weir:*", "&weir:*", "&*", "+@all"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// options are those that it takes.
func (s *secured) options(t *testing.T, i *issuer, certs [2]string) Options {
	t.Helper()
	o := Options{Timeout: patientTimeout, Store: strings.Replace(s.url, "://", "://"+storeUser+"@", 1) + patientClient, StorePasswords: store.Passwords{File: passwordFile(t, storePassword+"\n")}}
	if s.byTLS {
		o.StoreTLS = store.TLS{CA: i.file, Cert: certs[0], Key: certs[1]}
	}
	if s.sentinels != nil {
		o.Store += "&sentinel_username=" + storeUser
		o.StorePasswords.SentinelFile = passwordFile(t, sentinelPassword+"\n")
	}
	return o
}

// securedStores starts one for each topology.
func securedStores(t *testing.T, files testserver.Spec) map[string]secured {
	t.Helper()
	one, cluster, sentinel := files.Redis(t), files.Cluster(t, 3, "--cluster-require-full-coverage", "no"), files.Sentinel(t, 1)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	local := testserver.StartRedis(t, "--unixsocket", socket)
	return map[string]secured{
		"one":      {url: one.TLSURL(), servers: []*testserver.Redis{one}, byTLS: true},
		"cluster":  {url: cluster.URL(), servers: cluster.Masters, byTLS: true},
		"sentinel": {url: sentinel.URL(), servers: append(sentinel.Replicas, sentinel.Master), sentinels: sentinel.Sentinels, byTLS: true},
		"socket":   {url: "unix://" + socket, servers: []*testserver.Redis{local}},
	}
}

// TestSecuredStores: each topology by mutual TLS, as a user with a password, and what
// the server says where something about that is wrong.
func TestSecuredStores(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	var certs, strangers [2]string
	certs[0], certs[1] = i.pair("127.0.0.1")
	strangers[0], strangers[1] = other.pair("127.0.0.1")
	for name, store := range securedStores(t, testserver.Spec{TLS: testserver.TLS{Cert: certs[0], Key: certs[1], CA: i.file}}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store.guard(t)
			serves(t, start(t, store.options(t, i, certs)))
			for fault, c := range map[string]struct {
				wrong func(*Options)
				want  string
				tls   bool // where there is none, so is no fault
				watch bool // only where there are sentinels
			}{
				"another authority": {func(o *Options) { o.StoreTLS.CA = other.file }, "store tls ca", true, false},
				"a stranger":        {func(o *Options) { o.StoreTLS.Cert, o.StoreTLS.Key = strangers[0], strangers[1] }, "store tls cert", true, false},
				"no certificate":    {func(o *Options) { o.StoreTLS.Cert, o.StoreTLS.Key = "", "" }, "store tls cert", true, false},
				"a wrong password":  {func(o *Options) { o.StorePasswords.File = passwordFile(t, "wrong\n") }, "store password", false, false},
				"no user":           {func(o *Options) { o.Store = strings.Replace(o.Store, storeUser+"@", "nobody@", 1) }, "store password", false, false},
				"sentinels refuse":  {func(o *Options) { o.StorePasswords.SentinelFile = passwordFile(t, "wrong\n") }, "store sentinel password", false, true},
			} {
				if c.tls && !store.byTLS || c.watch && store.sentinels == nil {
					continue
				}
				o := store.options(t, i, certs)
				c.wrong(&o)
				app := start(t, o)
				// Whose connection is reset does not hear why; the next one may.
				eventually(t, func() error {
					status, body := details(t, app)
					if status != http.StatusServiceUnavailable || !strings.Contains(body, c.want) || strings.Contains(body, storePassword) {
						return fmt.Errorf("%s: %d %s, want 503 and %q", fault, status, body, c.want)
					}
					return nil
				})
			}
		})
	}
}

// TestWrongTopology: a URL of one kind for servers of another.
func TestWrongTopology(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("127.0.0.1")
	plain := testserver.StartRedis(t)
	node := testserver.StartRedis(t, "--cluster-enabled", "yes")
	byTLS := testserver.Spec{TLS: testserver.TLS{Cert: cert, Key: key, CA: i.file}}.Redis(t)
	for name, c := range map[string]struct {
		url  string
		want []string
	}{
		"cluster, and it is none":    {"redis+cluster://" + plain.Addr(), []string{"store", "no cluster", "redis://"}},
		"sentinels, and it is none":  {"redis+sentinel://main@" + plain.Addr(), []string{"store", "no sentinel", "redis://"}},
		"one, and it is a cluster":   {"redis://" + node.Addr(), []string{"cluster"}},
		"no TLS, and it wants it":    {strings.Replace(byTLS.TLSURL(), "rediss", "redis", 1), []string{"store", "rediss://"}},
		"sentinels without a master": {"redis+sentinel://other@" + testserver.StartSentinel(t, 0).Addrs()[0], []string{"store", "no master"}},
	} {
		status, body := details(t, start(t, Options{Timeout: patientTimeout, Store: c.url + patientClient}))
		for _, want := range c.want {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s, want 503 and %q", name, status, body, want)
			}
		}
	}
}
