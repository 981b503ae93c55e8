package e2e

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A budget of 60 units drains 5 a second. Ten callers hold 5 units each.
const (
	budget, drain = 60, 5
	holds, held   = 10, 5

	settledRules = `
domain: edge
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 60, period: 12s, algorithm: gcra}
`
	settledModels = `
domain: llm
descriptors:
  - key: key
    output_guess: 5
    rate_limit: {name: output, count: output, requests_per_unit: 60, period: 12s, algorithm: gcra}
`
)

// A settledDoor is a way to hold units and to settle them.
type settledDoor interface {
	hold(i int)
	settle() // settles all holds at 1 unit
	used() int
}

// TestOpenHoldsAreSettledExactly holds units for ten callers at once, waits until some have drained,
// and settles each hold at 1 unit. The callers have used ten units, less what drained meanwhile.
func TestOpenHoldsAreSettledExactly(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, store string) settledDoor{
		"HTTP": settledHTTP, "RLS": settledRLS, "models": settledByModels,
	} {
		for _, store := range []string{"memory", "redis"} {
			t.Run(name+"/"+store, func(t *testing.T) {
				t.Parallel()
				url := store
				if store == "redis" {
					url = testserver.StartRedis(t).URL()
				}
				door := open(t, url)
				begun := time.Now()
				for i := range holds {
					door.hold(i)
				}
				testserver.Eventually(t, "five units have drained", func() bool { return door.used() <= holds*held-held })
				door.settle()
				used, drained := door.used(), int(math.Ceil(drain*time.Since(begun).Seconds()))
				if used > holds-held || used < holds-drained {
					t.Errorf("%d units are used, want %d to %d", used, max(0, holds-drained), holds-held)
				}
			})
		}
	}
}

// settled is a server with settledRules.
type settled struct {
	*weir
	t *testing.T
}

func newSettled(t *testing.T, store string) settled {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(settledRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return settled{serve(t, rules, store), t}
}

func (s settled) used() int { return budget - s.remaining(s.t, "user", "a") }

type overHTTP struct{ settled }

func settledHTTP(t *testing.T, store string) settledDoor { return overHTTP{newSettled(t, store)} }

func (s overHTTP) post(path, more string) {
	s.t.Helper()
	body := `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}]}],` + more + `}`
	resp, err := http.Post(s.url()+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", path, more, resp.StatusCode, text)
	}
}

func (s overHTTP) hold(i int) {
	s.post("/v1/take", fmt.Sprintf(`"cost":%d,"id":"call-%d","hold_ms":60000`, held, i))
}

func (s overHTTP) settle() {
	for i := range holds {
		s.post("/v1/settle", fmt.Sprintf(`"cost":1,"id":"call-%d"`, i))
	}
}

type overRLS struct {
	settled
	client rlsv3.RateLimitServiceClient
}

func settledRLS(t *testing.T, store string) settledDoor {
	s := newSettled(t, store)
	return overRLS{s, rlsv3.NewRateLimitServiceClient(dialEnvoy(t, s.weir))}
}

func (s overRLS) hits(n uint64, negative bool) {
	s.t.Helper()
	d := envoy("user", "a")
	d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(n), negative
	resp, err := s.client.ShouldRateLimit(s.t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{d}})
	if err != nil || resp.OverallCode != rlsv3.RateLimitResponse_OK {
		s.t.Fatal(resp, err)
	}
}

func (s overRLS) hold(int) { s.hits(held, false) }

func (s overRLS) settle() {
	for range holds {
		s.hits(held-1, true)
	}
}

// overModels is a proxy before a provider that answers with one word, once it may.
type overModels struct {
	*modelProxy
	asked    atomic.Int64
	answer   chan struct{}
	answered sync.WaitGroup
}

func settledByModels(t *testing.T, store string) settledDoor {
	s := &overModels{answer: make(chan struct{})}
	asked := func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		select {
		case <-s.answer:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"word"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}
	provider := httptest.NewServer(http.HandlerFunc(asked))
	t.Cleanup(provider.Close)
	s.modelProxy = proxyWith(t, settledModels, store, "--upstream", provider.URL)
	return s
}

func (s *overModels) hold(i int) {
	s.answered.Go(func() {
		if resp := s.call("word", false); resp.StatusCode != http.StatusOK {
			s.t.Errorf("status %d", resp.StatusCode)
		}
	})
	testserver.Eventually(s.t, "the provider is asked", func() bool { return s.asked.Load() > int64(i) })
}

func (s *overModels) settle() {
	close(s.answer)
	s.answered.Wait()
	// The provider's answer is passed on before it is settled.
	testserver.Eventually(s.t, "all requests are settled", func() bool {
		resp, err := http.Get("http://" + s.addrs["admin"] + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return settledUnits.FindStringSubmatch(string(text)) != nil
	})
}

var settledUnits = regexp.MustCompile(fmt.Sprintf(`(?m)^weir_models_settled_units_total{.*} %d$`, holds))

func (s *overModels) used() int { return int(s.modelProxy.used()["output"]) }
