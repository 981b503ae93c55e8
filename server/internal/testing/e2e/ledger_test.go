package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const (
	persons = 30
	rounds  = 31
	// Each answer of mock-31 costs 31 thousandths of a dollar.
	eachUSD = 31_000

	// ledgerRules have windows that do not end at midnight. A store failure refuses nobody.
	ledgerRules = `
domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - key: user
    rate_limit: {name: user, count: usd, dollars: 1, unit: year, algorithm: fixed_window, on_store_failure: allow, alert: [80%, 100%]}
  - key: company
    rate_limit: {name: company, count: usd, dollars: 30, unit: year, algorithm: fixed_window, on_store_failure: allow, alert: [50%, 80%, 100%]}
`
)

func tokenOfPerson(i int) string { return fmt.Sprintf("the-token-of-person-number-%d-of-acme", i) }

// acme writes a file of callers: so many people of a company.
func acme(t *testing.T, people int) string {
	t.Helper()
	text := "callers:\n"
	for i := range people {
		sum := sha256.Sum256([]byte(tokenOfPerson(i)))
		text += fmt.Sprintf("  - {name: p%d, labels: {user: p%[1]d, company: acme}, tokens: [%s], verbs: [take], domains: [llm]}\n", i, hex.EncodeToString(sum[:]))
	}
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// asPerson calls a model for a person; 0: there was no answer.
func (p *modelProxy) asPerson(ctx context.Context, client *http.Client, i, words int) (int, string) {
	body := fmt.Sprintf(`{"model":"mock-%d","max_tokens":%[1]d,"messages":[{"role":"user","content":%q}]}`, words, prompt)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addrs["models"]+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+tokenOfPerson(i))
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// A hook is a webhook that is down at first, and then loses its first answer to every third alert.
type hook struct {
	*httptest.Server
	up    atomic.Bool
	mu    sync.Mutex
	seen  map[string][]string // bodies by ID
	tries atomic.Int64
}

func startHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{seen: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if h.tries.Add(1); !h.up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := r.Header.Get("Webhook-Id")
		h.mu.Lock()
		known := len(h.seen[id])
		lost := known == 0 && len(h.seen)%3 == 0
		h.seen[id] = append(h.seen[id], string(body))
		h.mu.Unlock()
		if lost {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// texts returns the text of each ID, and how often alerts came again.
func (h *hook) texts(t *testing.T) (all []string, again int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, bodies := range h.seen {
		var m struct{ Text string }
		if err := json.Unmarshal([]byte(bodies[0]), &m); err != nil || len(slices.Compact(slices.Clone(bodies))) != 1 {
			t.Errorf("%s has %v, %v", id, bodies, err)
		}
		all, again = append(all, m.Text), again+len(bodies)-1
	}
	slices.Sort(all)
	return all, again
}

// TestAlertsSurvive has 30 people of a company make 930 requests at two instances, while the
// webhook is down, replies to the ledger are lost, one instance is killed and Redis stands still for
// 1.5 s. Each alert is recorded once, delivered, and comes again only under its ID.
func TestAlertsSurvive(t *testing.T) {
	t.Parallel()
	server, h := testserver.StartRedis(t), startHook(t)
	var entries atomic.Int64
	between := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
		if strings.Contains(string(request), "{ledger/llm}") {
			if n := entries.Add(1); n%100 == 0 {
				return []testserver.Fault{testserver.Drop, testserver.Refuse, testserver.Cut, testserver.Reset}[n/100%4]
			}
		}
		return testserver.Pass
	})
	callers := acme(t, persons)
	instance := func() *modelProxy {
		return proxyWith(t, ledgerRules, "redis://"+between.Addr(), "--mock", "--callers", callers, "--alert-webhook", h.URL)
	}
	stays, dies := instance(), instance()
	client := newClient(t)
	var sent, gone atomic.Int64
	for round := range rounds {
		var done sync.WaitGroup
		for i := range persons {
			done.Go(func() {
				switch sent.Add(1) {
				case 9*persons + persons/2:
					dies.Stop(syscall.SIGKILL)
					gone.Store(1)
				case 20 * persons:
					server.Pause()
					time.AfterFunc(1500*time.Millisecond, server.Resume)
				}
				at := stays
				if (i+round)%2 == 1 && gone.Load() == 0 {
					at = dies
				}
				status, text := at.asPerson(t.Context(), client, i, 31)
				if status == 0 && at == dies {
					status, text = stays.asPerson(t.Context(), client, i, 31)
				}
				if status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
			})
		}
		done.Wait()
	}
	testserver.Eventually(t, "attempts", func() bool { return h.tries.Load() > 0 })
	h.up.Store(true)

	// The instance that was killed took at most five requests of each person along, so that everybody
	// is beyond 80 % of $1, and the company beyond 80 % of $30, but below all of it.
	want := []string{"acme has used 50 % of $30 a year (company)", "acme has used 80 % of $30 a year (company)"}
	for i := range persons {
		want = append(want, fmt.Sprintf("p%d has used 80 %% of $1 a year (user)", i))
	}
	slices.Sort(want)
	testserver.Eventually(t, "all alerts, and those again whose answer was lost", func() bool {
		all, again := h.texts(t)
		return len(all) >= len(want) && again >= len(want)/3
	})
	got, _ := h.texts(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lost := between.Done(testserver.Drop) + between.Done(testserver.Cut) + between.Done(testserver.Reset); lost < 3 {
		t.Errorf("only %d replies were lost", lost)
	}

	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = direct.Close() })
	testserver.Eventually(t, "an empty outbox", func() bool {
		return direct.Exists(t.Context(), "weir:{ledger/llm}:outbox", "weir:{ledger/llm}:due").Val() == 0
	})
	stays.Stop(syscall.SIGTERM)
	sums := map[string]int64{}
	for _, month := range direct.Keys(t.Context(), "weir:{ledger/llm}:month:*").Val() {
		for field, text := range direct.HGetAll(t.Context(), month).Val() {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(field, " ")
			sums[name] += n
		}
	}
	if n := sums["requests"]; n > rounds*persons+persons || n < (rounds-5)*persons || sums["usd"] != n*eachUSD {
		t.Errorf("the ledger has %v", sums)
	}
}

// TestEmptiedInMidYear empties Redis under two instances: the next requests are refused as before.
// After one of them is killed and Redis is emptied again, what that one had settled is lost, and
// nothing else.
func TestEmptiedInMidYear(t *testing.T) {
	t.Parallel()
	server, callers := testserver.StartRedis(t), acme(t, 2)
	instance := func() *modelProxy {
		return proxyWith(t, ledgerRules, server.URL(), "--mock", "--callers", callers)
	}
	stays, dies := instance(), instance()
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = direct.Close() })
	client := newClient(t)
	ask := func(at *modelProxy, i, want int) {
		t.Helper()
		if status, text := at.asPerson(t.Context(), client, i, 300); status != want {
			t.Errorf("p%d: %d %s, want %d", i, status, text, want)
		}
	}
	settled := func(users ...string) {
		t.Helper()
		testserver.Eventually(t, "the ledger", func() bool {
			got := map[string]string{}
			for _, window := range direct.Keys(t.Context(), "weir:{ledger/llm}:window:*").Val() {
				for key, used := range direct.HGetAll(t.Context(), window).Val() {
					got[key] = used
				}
			}
			for i, want := range users {
				if got[fmt.Sprintf("llm/user=p%d;user;user", i)] != want {
					return false
				}
			}
			return true
		})
	}
	empty := func() {
		t.Helper()
		if err := direct.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Each request costs $0.3 of $1.
	ask(stays, 0, http.StatusOK)
	ask(stays, 0, http.StatusOK)
	ask(dies, 0, http.StatusOK)
	for range 3 {
		ask(dies, 1, http.StatusOK)
	}
	refused := func() {
		t.Helper()
		for _, at := range []*modelProxy{stays, dies} {
			ask(at, 0, http.StatusTooManyRequests)
			ask(at, 1, http.StatusTooManyRequests)
		}
	}
	refused()
	settled("900000", "900000")
	for range 2 {
		empty()
		settled("900000", "900000")
		refused()
	}
	dies.Stop(syscall.SIGKILL)
	empty()
	settled("600000")
	ask(stays, 0, http.StatusOK)
	ask(stays, 0, http.StatusTooManyRequests)
	ask(stays, 1, http.StatusOK)
}
