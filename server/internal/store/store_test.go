package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory:x":                              "memory alone",
		"memcached://h":                         "of an unknown scheme",
		"redis.internal:6379":                   "want redis://HOST:PORT/0 for a host and a port",
		"redis+cluster://h:1,h:2/1":             "a database number",
		"redis+cluster://h:1,":                  `a host that is none: ""`,
		"redis+cluster://h:1,h:port":            `a host that is none: "h:port"`,
		"redis+cluster://u:hunter2@h:1?x=1":     "unexpected option: x",
		"redis+sentinel://h/mymaster":           "without a master's name",
		"redis+sentinel://u:hunter2@h:1,h:2":    "without a master's name",
		"redis+sentinel://m@h:1/x":              "invalid database number",
		"redis://h?sentinel_password=hunter2":   "without sentinels",
		"redis+ring://h:1,h:2":                  "of an unknown scheme",
		"redis://u:hunter2@h:port":              "not a URL",
		"redis://u:hun%ter2@h":                  "not a URL",
		"redis://u:hunter2@h/zero":              "invalid database number",
		"redis://u:hunter2@h?read_timeout=soon": "read_timeout",
		"hunter2":                               "of an unknown scheme",
	} {
		_, err := Open(Options{URL: url})
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != "store" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}

func TestOpenConnectsToNothing(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"memory", "memory://", "redis://h:1/2", "rediss://u:p@h", "unix:///run/redis.sock?db=1", "redis+cluster://u:p@h:1,h,[::1]:7", "rediss+sentinel://u:p@main@h,h:2/3?pool_size=2&sentinel_password=q"} {
		s, err := Open(Options{URL: url})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestTune(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL("redis://h?max_retries=5&read_timeout=2s&pool_size=3")
	if err != nil {
		t.Fatal(err)
	}
	tune(o)
	if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || !o.DisableIdentity {
		t.Errorf("a charge could be sent twice, or its deadline missed: %+v", o)
	}
	if o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
		t.Errorf("maintenance notifications: %s", o.MaintNotificationsConfig.Mode)
	}
	if o.ReadTimeout != 2*time.Second || o.PoolSize != 3 || o.MaxActiveConns != 3 {
		t.Errorf("the URL's choices are lost: %s, %d, %d", o.ReadTimeout, o.PoolSize, o.MaxActiveConns)
	}
	if o.WriteTimeout != socketTimeout || o.DialTimeout != socketTimeout {
		t.Errorf("defaults: %s, %s", o.WriteTimeout, o.DialTimeout)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory":                              "memory",
		"memory://":                           "memory",
		"redis://u:hunter2@h:1/2?password=no": "redis://h:1/2",
		"unix://u:hunter2@/run/redis.sock":    "unix:///run/redis.sock",
		"redis://u:hun%ter2@h":                "redis",
		"redis+cluster://u:hunter2@h,i:2?x":   "redis+cluster",
		"redis+cluster://u:hunter2@h,i:2":     "redis+cluster://h:6379,i:2",
		"redis+sentinel://u:hunter2@m@h/1":    "redis+sentinel://m@h:26379",
		"redis+sentinel://u:hunter2@h":        "redis+sentinel",
	} {
		if got := describe(url); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

func TestClusterView(t *testing.T) {
	t.Parallel()
	const text = `
a1 10.0.0.2:6379@16379,two.example master - 0 0 2 connected 5461-10922
a0 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460
b1 10.0.0.5:6379@16379 slave a1 0 0 2 disconnected
b0 10.0.0.4:6379@16379 slave,fail a0 0 0 1 disconnected
a2 10.0.0.3:6379@16379 master,fail? - 0 0 3 connected 10923-16000 16002-16383
n0 10.0.0.9:6379@16379 handshake - 0 0 0 disconnected
c0 10.0.0.7:6379@16379 master - 0 0 0 connected

too short
`
	want := []Node{
		{Address: "10.0.0.1:6379", Role: "master", Detail: "slots 0-5460"},
		{Address: "10.0.0.4:6379", Role: "replica", Detail: "unreachable; of 10.0.0.1:6379", Bad: true},
		{Address: "10.0.0.2:6379", Role: "master", Detail: "slots 5461-10922"},
		{Address: "10.0.0.5:6379", Role: "replica", Detail: "not connected to another node; of 10.0.0.2:6379", Bad: true},
		{Address: "10.0.0.3:6379", Role: "master", Detail: "does not answer another node; slots 10923-16000 16002-16383", Bad: true},
		{Address: "10.0.0.7:6379", Role: "master", Detail: "no slots"},
		{Address: "10.0.0.9:6379", Role: "master", Detail: "not known well yet; no slots", Bad: true},
	}
	if diff := cmp.Diff(want, clusterView(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReplication(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		info string
		want []Node
	}{
		"alone": {"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n", []Node{{Address: "h:1", Role: "master"}}},
		"replicas": {"role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1,lag=0\r\nslave1:ip=10.0.0.3,port=6381,state=wait_bgsave,offset=0,lag=0\r\n", []Node{
			{Address: "h:1", Role: "master"}, {Address: "10.0.0.2:6380", Role: "replica", Detail: "online"}, {Address: "10.0.0.3:6381", Role: "replica", Detail: "wait_bgsave", Bad: true},
		}},
		"a replica": {"role:slave\r\nslave_read_only:1\r\n", []Node{{Address: "h:1", Role: "replica", Detail: "takes no writes", Bad: true}}},
	} {
		if diff := cmp.Diff(tc.want, replication("h:1", tc.info)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestSeen reads what sentinels say.
func TestSeen(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"master":                    "",
		"s_down,master":             "unreachable, as one sentinel says",
		"s_down,o_down,master":      "unreachable, as most sentinels say",
		"s_down,slave,disconnected": "unreachable, as one sentinel says",
		"master,disconnected":       "not connected to a sentinel",
	} {
		got := seen(roleMaster, map[string]string{"ip": "::1", "port": "1", "flags": flags})
		if got.Address != "[::1]:1" || got.Detail != want || got.Bad != (want != "") {
			t.Errorf("%s: %+v", flags, got)
		}
	}
	if got := unknown("h:1", roleSentinel, errors.New("refused"), ""); !got.Bad || got.Detail != "unreachable: refused" {
		t.Errorf("%+v", got)
	}
	if got := seen(roleReplica, map[string]string{"flags": "slave", "master-link-status": "err"}); !got.Bad {
		t.Errorf("a replica without its master: %+v", got)
	}
}

// TestNodesAreAskedAtATime: many pages are one question, also where who asked has
// gone.
func TestNodesAreAskedAtATime(t *testing.T) {
	t.Parallel()
	asked := 0
	n := &topology{ask: func(ctx context.Context) []Node {
		asked++
		if ctx.Err() != nil {
			t.Errorf("asked with %v", ctx.Err())
		}
		return []Node{{Address: "h:1"}}
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if got := n.nodes(gone); len(got) != 1 {
			t.Errorf("got %v", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// FuzzStoreURL: however a URL is spelled, what is said of it does not repeat the
// password, not even one that was not percent-encoded.
func FuzzStoreURL(f *testing.F) {
	const secret = "CANARY"
	for _, s := range []string{"redis://u:", "rediss+cluster://:", "redis+sentinel://u:", "unix://:", "redis://h?sentinel_password=", "redis+sentinel://m@h?sentinel_password="} {
		f.Add(s, "", "", "h:1,h:2/0?pool_size=2")
	}
	f.Add("redis+cluster://u:", "pa/", "", "h")
	f.Add("redis:/u:", "", "", "h:1")
	f.Add("redis:///u:", "", "", "h:1")
	f.Add("redis://u:", "12/", "", "h")
	f.Add("redis://u:", "1?", "", "h?read_timeout=1")
	f.Add("redis+sentinel://u:", "a@", "", "h")
	f.Add("redis+sentinel://m@h?sentinel_password=", "a&", "", "")
	f.Add("redis+sentinel://m@h?sentinel_password=", "&", "", "")
	f.Fuzz(func(t *testing.T, before, left, right, hosts string) {
		before, hosts = strings.ReplaceAll(before, secret, "-"), strings.ReplaceAll(hosts, secret, "-")
		end := ""
		_, query, _ := strings.Cut(before, "?")
		if !strings.HasSuffix("&"+query, "&sentinel_password=") {
			// After an @ or a ? there is no place for a password.
			before = strings.TrimSuffix(strings.NewReplacer("@", "", "?", "").Replace(before), ":") + ":"
			end = "@"
			if strings.Contains(before, "sentinel:") {
				end = "@m@"
			}
		}
		raw := before + left + secret + right + end + hosts
		fuzztest.Within(t, fuzztest.MostBytes, len(raw), func() {
			to, err := parseTarget(raw)
			if err != nil {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", raw, err)
				}
				return
			}
			if told := describe(raw); strings.Contains(told, secret) || strings.Contains(strings.Join(to.addrs, " ")+to.Addr, secret) {
				t.Errorf("%q is told as %q, and connects to %q and %q", raw, told, to.Addr, to.addrs)
			}
		})
	})
}
