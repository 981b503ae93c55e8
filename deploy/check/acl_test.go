package check

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

var (
	aclLine = regexp.MustCompile(`(?m)^user (weir on >)PASSWORD (.*)$`)
	called  = regexp.MustCompile(`call\('([A-Z]+)'`)
)

// user returns what SECURITY.md gives Weir in Redis, as words.
func user(t *testing.T) []string {
	t.Helper()
	line := aclLine.FindSubmatch(read(t, filepath.Join(root, "SECURITY.md")))
	if line == nil {
		t.Fatal("SECURITY.md names no user")
	}
	return strings.Fields(string(line[1]) + "hunter2 " + string(line[2]))
}

// TestRedisUser: the user can do what the scripts and the client call, and
// nothing else.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"+evalsha": true, "+eval": true, "+ping": true}
	// The commands that no script calls: they read the overrides of other instances and the
	// months of the ledger, and check the server.
	for _, name := range []string{"hget", "hgetall", "hscan", "info"} {
		want["+"+name] = true
	}
	for _, name := range sources(t) {
		// The queue is the library's alone, and the examples are others' programs.
		if filepath.Ext(name) != ".lua" || strings.HasPrefix(name, "redisstore/queue/") || strings.HasPrefix(name, "examples/") || strings.Contains(name, "testdata") {
			continue
		}
		for _, match := range called.FindAllSubmatch(read(t, filepath.Join(root, name)), -1) {
			want["+"+strings.ToLower(string(match[1]))] = true
		}
	}
	got := map[string]bool{}
	for _, word := range user(t) {
		if strings.HasPrefix(word, "+") {
			got[word] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("SECURITY.md has %v\nwant %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// TestRedisUserSuffices makes every kind of call as that user, for every
// algorithm, and lets Redis say whether anything was refused.
func TestRedisUserSuffices(t *testing.T) {
	t.Parallel()
	m := release(t)
	store := testserver.StartRedis(t, append([]string{"--user"}, user(t)...)...)
	algorithms := []string{"gcra", "fixed_window", "sliding_log", "rolling_window", "sliding_counter", "token_bucket", "leaky_bucket", "concurrency"}
	rules := "domain: all\ndescriptors:\n"
	for _, name := range algorithms {
		rules += fmt.Sprintf("  - {key: %s, rate_limit: {requests_per_unit: 3, unit: minute, algorithm: %[1]s}}\n", name)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules, 0o644)
	url := strings.Replace(store.URL(), "redis://", "redis://weir:hunter2@", 1)
	s := serve(t, served{command: []string{m.binary, "serve", "--config=" + path}, env: []string{"WEIR_STORE=" + url}})
	s.answers = map[int]int{}
	for _, name := range algorithms {
		request := fmt.Sprintf(`"domain":"all","descriptors":[{"entries":[{"key":%q,"value":"v"}]}]`, name)
		for _, call := range []string{
			`take {%s,"id":"one","hold_ms":60000}`, `take {%s,"id":"one","hold_ms":60000}`, `renew {%s,"id":"one"}`,
			`settle {%s,"id":"one","cost":2}`, `release {%s,"id":"one"}`,
			`take {%s,"id":"two"}`, `refund {%s,"id":"two","cost":1}`, `take {%s}`, `take {%s,"cost":3}`,
		} {
			s.post(fmt.Sprintf(call, request))
		}
	}
	s.stop()
	if s.answers[200] < 5*len(algorithms) || s.answers[429] < len(algorithms) {
		t.Errorf("answers %v: want more calls that reach the store", s.answers)
	}
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	alerted(t, m.binary, url)
	if keys := client.Keys(t.Context(), "weir:{ledger/llm}:month:*").Val(); len(keys) != 1 {
		t.Errorf("the ledger has %v", client.Keys(t.Context(), "*").Val())
	}
	refused, err := client.ACLLog(t.Context(), 10).Result()
	if err != nil || len(refused) > 0 {
		t.Errorf("Redis refused %d commands, %v", len(refused), err)
		for _, entry := range refused {
			t.Errorf("%+v", *entry)
		}
	}
	stranger := redis.NewClient(&redis.Options{Addr: store.Addr(), Username: "weir", Password: "hunter2"})
	defer stranger.Close()
	for _, command := range [][]any{{"GET", "other"}, {"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"KEYS", "*"}, {"SCRIPT", "FLUSH"}} {
		if err := stranger.Do(t.Context(), command...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%v: %v, want NOPERM", command, err)
		}
	}
}

// alerted has weir models record what a request used and deliver an alert.
func alerted(t *testing.T, binary, url string) {
	t.Helper()
	posted := make(chan struct{}, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posted <- struct{}{} }))
	defer hook.Close()
	rules := filepath.Join(t.TempDir(), "models.yaml")
	write(t, rules, `domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors: [{key: key, rate_limit: {count: usd, dollars: 1, unit: month, algorithm: fixed_window, time_zone: UTC, alert: [1%]}}]
`, 0o644)
	cmd := exec.Command(binary, "models", "--mock", "--listen=127.0.0.1:0", "--config="+rules, "--alert-webhook="+hook.URL)
	cmd.Env = []string{"WEIR_STORE=" + url, "WEIR_ADMIN=127.0.0.1:0"}
	p := testserver.Start(t, cmd)
	addr := ""
	for addr == "" {
		select {
		case line, ok := <-p.Lines:
			if !ok {
				t.Fatalf("%s ended: %s", cmd, p.Stderr)
			}
			addr, _ = strings.CutPrefix(line, "models ")
		case <-time.After(patience):
			t.Fatalf("%s does not serve: %s", cmd, p.Stderr)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(`{"model":"mock-40","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer any-key")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	select {
	case <-posted:
	case <-time.After(patience):
		t.Errorf("%d, and no alert: %s", resp.StatusCode, p.Stderr)
	}
	p.Stop(syscall.SIGTERM)
}

// post makes a call that the store has to answer, whatever its answer.
func (s *server) post(call string) {
	s.t.Helper()
	name, body, _ := strings.Cut(call, " ")
	client := http.Client{Timeout: patience}
	resp, err := client.Post("http://"+s.http+"/v1/"+name, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 {
		s.t.Errorf("%s: %d", call, resp.StatusCode)
	}
	s.answers[resp.StatusCode]++
}
