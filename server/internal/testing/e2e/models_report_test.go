package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
)

const reportRules = `
domain: llm
models: [{model: "*", input: 1, output: 2}]
descriptors:
  - key: key
    output_guess: 50
    rate_limits:
      - {name: requests, requests_per_unit: 100000, unit: month, algorithm: fixed_window, time_zone: UTC}
      - {name: dollars, count: usd, dollars: 1000, unit: month, algorithm: fixed_window, time_zone: UTC}
      - {name: open, requests_per_unit: 100, period: 5s, algorithm: concurrency}
  - {key: model, value: tight-5, rate_limit: {name: tight, requests_per_unit: 3, unit: year, algorithm: fixed_window}}
`

// provider is one that answers as the name of the model says.
func provider(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model  string
			Stream bool
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		kind, text, _ := strings.Cut(body.Model, "-")
		n, _ := strconv.Atoi(text)
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, 10+n, n)
		switch {
		case kind == "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case kind == "stranger":
			w.WriteHeader(http.StatusUnauthorized)
		case !body.Stream:
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"word"}}],%s}`, usage)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			for range max(1, n) {
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
			}
			w.(http.Flusher).Flush()
			if kind == "hang" {
				<-r.Context().Done()
				return
			}
			fmt.Fprintf(w, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A monthReport is what weir report prints as JSON.
type monthReport struct {
	Rows  []map[string]any
	Total struct {
		Requests     int64
		Refused      int64
		USD          string
		UnsettledUSD string `json:"unsettled_usd"`
	}
	Lacks []string
}

// report runs weir report.
func report(t *testing.T, args ...string) *monthReport {
	t.Helper()
	month := thisMonth()
	out, err := exec.Command(binary(t), append([]string{"report", "llm", "--month", month, "--format", "json"}, args...)...).Output()
	if ended := new(exec.ExitError); err != nil && !(errors.As(err, &ended) && ended.ExitCode() == 1) {
		t.Fatalf("%v: %v", args, err)
	}
	r := new(monthReport)
	if err := json.Unmarshal(out, r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return r
}

// TestModelsReport makes requests of all kinds at two instances, kills one of them while streams are
// open, and starts it again. In the end the report of the store is that of the journals, and what the
// limits counted is what both have, with the holds that they name.
func TestModelsReport(t *testing.T) {
	t.Parallel()
	store, upstream := testserver.StartRedis(t).URL(), provider(t)
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	start := func(i int) *modelProxy {
		return proxyWith(t, reportRules, store, "--upstream", upstream, "--journal", dirs[i], "--read-on", "0s")
	}
	both := []*modelProxy{start(0), start(1)}
	var requests, refused atomic.Int64
	one := func(p *modelProxy, model string, left bool) {
		answer := p.call(model, strings.HasPrefix(model, "stream") || strings.HasPrefix(model, "hang"))
		if left {
			_, _ = answer.Body.Read(make([]byte, 10))
			_ = answer.Body.Close()
		} else {
			_, _ = io.Copy(io.Discard, answer.Body)
		}
		switch answer.StatusCode {
		case http.StatusTooManyRequests:
			refused.Add(1)
		case http.StatusUnauthorized:
		default:
			requests.Add(1)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var calls sync.WaitGroup
	for range 4 {
		order := random.Perm(40)
		calls.Go(func() {
			for _, n := range order {
				models := []string{"plain-5", "plain-700", "stream-20", "fail", "stranger", "tight-5", "hang-30", "stream-90"}
				model, p := models[n/2%len(models)], both[n%2]
				if model == "tight-5" {
					p = both[1] // An instance that is killed takes its last refusals with it.
				}
				one(p, model, model == "hang-30")
			}
		})
	}
	calls.Wait()
	for range 3 {
		both[0].stream("hang-7")
		requests.Add(1)
	}
	testserver.Eventually(t, "the open requests in the journal", func() bool {
		found, err := ledger.ReadJournals(dirs, "llm", thisMonth(), func(*ledger.Row) {})
		return err == nil && found.Open == 3
	})
	_ = both[0].Cmd.Process.Kill()
	<-both[0].Exited
	both[0] = start(0)
	one(both[0], "plain-5", false)
	testserver.Eventually(t, "the requests that were killed", func() bool {
		r := report(t, "--store", store)
		return r.Total.Requests == requests.Load() && len(r.Lacks) == 1
	})
	used := both[1].used()
	for _, p := range both {
		p.Stop(syscall.SIGTERM)
	}
	fromStore, fromJournals := report(t, "--store", store), report(t, "--from-journal", dirs[0], "--from-journal", dirs[1])
	if diff := cmp.Diff(fromStore, fromJournals); diff != "" {
		t.Errorf("(-store +journals):\n%s", diff)
	}
	usd, ok := config.ParseDollars(fromStore.Total.USD)
	unsettled, alsoOK := config.ParseDollars(fromStore.Total.UnsettledUSD)
	if !ok || !alsoOK || unsettled == 0 || used["dollars"] != usd+unsettled || used["requests"] != requests.Load() || fromStore.Total.Refused != refused.Load() || refused.Load() == 0 {
		t.Errorf("the limits have used %v, %d requests were made and %d refused; reported: %+v", used, requests.Load(), refused.Load(), fromStore.Total)
	}
}

// thisMonth names the month in UTC.
func thisMonth() string { return time.Now().UTC().Format("2006-01") }
