package e2e

import (
	"cmp"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// quotaPage returns a block of docs/rlqs.md by what it has.
func quotaPage(t *testing.T, has string) string {
	t.Helper()
	for _, b := range pages.Blocks(t, "docs/rlqs.md") {
		if b.Language == "yaml" && strings.Contains(b.Text, has) {
			return b.Text
		}
	}
	t.Fatalf("docs/rlqs.md has no block with %s", has)
	return ""
}

// serveQuotas serves rules to Envoys' quota clients.
func serveQuotas(t *testing.T, rules string, more ...string) *weir {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, file, "memory", append([]string{"--rlqs"}, more...)...)
}

// quotaEnvoy starts an Envoy with the configuration of docs/rlqs.md.
func quotaEnvoy(t *testing.T, grpc string, b *backend) *edge {
	t.Helper()
	return startEnvoy(t, quotaPage(t, "static_resources:"), at("weir", 8081), "socket_address: "+socket(grpc), at("application", 8080), "socket_address: "+socket(b.addr))
}

// tries sends requests until one passes.
func (e *edge) tries(lines ...string) {
	e.t.Helper()
	testserver.Eventually(e.t, "Envoy has a lease", func() bool {
		status, _ := e.send("/", lines...)
		return status == http.StatusOK
	})
}

// TestQuotaPage runs Envoy with the configuration and the rules of docs/rlqs.md.
func TestQuotaPage(t *testing.T) {
	t.Parallel()
	w, b := serveQuotas(t, quotaPage(t, "quota: true")), newBackend(t)
	e := quotaEnvoy(t, w.grpc, b)
	for _, lines := range [][]string{nil, {"X-User-Id: a"}, {"X-User-Id: b"}} {
		if status, _ := e.send("/", lines...); status != http.StatusTooManyRequests {
			t.Errorf("%v: status %d before the first lease", lines, status)
		}
		e.tries(lines...)
	}
	// Whatever a client puts into its bucket's id, it gets no lease, and others do.
	for _, value := range []string{"\xff\xfe", strings.Repeat("x", 50_000), "\xc3" + strings.Repeat("y", 50_000)} {
		for range 3 {
			if status, _ := e.send("/", "X-User-Id: "+value); status != http.StatusTooManyRequests {
				t.Errorf("%.5q: status %d", value, status)
			}
		}
	}
	e.tries("X-User-Id: c")
	if n := w.metric(t, "weir_rlqs_buckets"); n != 4 {
		t.Errorf("%v buckets", n)
	}
	if n := w.metric(t, "weir_rlqs_streams"); n != 1 {
		t.Errorf("%v streams", n)
	}
	if n := w.metric(t, "weir_rlqs_unleased_units_total"); n != 0 {
		t.Errorf("%v requests were granted without a lease", n)
	}
}

// metric returns a metric without labels.
func (w *weir) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	resp, err := http.Get(w.url() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			if value, err = strconv.ParseFloat(strings.TrimSpace(rest), 64); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A grant is a request that passed, from when it was sent to when the answer had come.
type grant struct{ from, to time.Duration }

// A drive is load on Envoys, whether or not they answer.
type drive struct {
	began   time.Time
	mu      sync.Mutex
	grants  [][]grant // of each Envoy
	asked   []int
	pending sync.WaitGroup
}

// driveEnvoys sends each Envoy so many requests a second for some time.
func driveEnvoys(t *testing.T, edges []*edge, rates []float64, lasts time.Duration) *drive {
	t.Helper()
	d := &drive{began: time.Now(), grants: make([][]grant, len(edges)), asked: make([]int, len(edges))}
	var clients sync.WaitGroup
	for i, e := range edges {
		client := newClient(t)
		client.Timeout = 2 * time.Second // an Envoy may be stopped
		clients.Go(func() {
			for n := 0; ; n++ {
				next := time.Duration(float64(n) / rates[i] * float64(time.Second))
				if next >= lasts {
					return
				}
				time.Sleep(next - time.Since(d.began))
				d.pending.Go(func() { d.ask(client, i, e.addr) })
			}
		})
	}
	clients.Wait()
	d.pending.Wait()
	return d
}

func (d *drive) ask(client *http.Client, i int, addr string) {
	from := time.Since(d.began)
	resp, err := client.Get("http://" + addr + "/")
	to := time.Since(d.began)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[i]++
	if err != nil {
		return // the Envoy is gone, or stopped
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		d.grants[i] = append(d.grants[i], grant{from, to})
	}
}

// granted returns the number of grants from an instant on.
func (d *drive) granted(since time.Duration) (n int) {
	for _, grants := range d.grants {
		for _, g := range grants {
			if g.from >= since {
				n++
			}
		}
	}
	return n
}

// excess returns by how much some interval has more grants than the limit drains in it. A grant is
// in an interval if it certainly was: how late answers come makes no difference.
func (d *drive) excess(rate float64) (most float64) {
	all := slices.Concat(d.grants...)
	slices.SortFunc(all, func(a, b grant) int { return cmp.Compare(a.to, b.to) })
	for _, first := range all {
		n := 0
		for _, g := range all {
			if g.from >= first.from {
				n++
				most = max(most, float64(n)-rate*(g.to-first.from).Seconds())
			}
		}
	}
	return most
}

const (
	quotaRate  = 100 // of the page's limit, and its burst
	quotaBurst = 100
	// quotaLeases is the most that Envoys may be able to spend at a time.
	quotaLeases = 2 * quotaRate
)

// TestQuotaDivided has three Envoys divide one limit. A stop ends their streams.
func TestQuotaDivided(t *testing.T) {
	t.Parallel()
	w, b := serveQuotas(t, quotaPage(t, "quota: true")), newBackend(t)
	edges := make([]*edge, 3)
	for i := range edges {
		edges[i] = quotaEnvoy(t, w.grpc, b)
	}
	d := driveEnvoys(t, edges, []float64{60, 60, 60}, 8*time.Second)
	if excess := d.excess(quotaRate); excess > quotaBurst+quotaLeases {
		t.Errorf("an interval has %.0f more grants than the limit drains", excess)
	}
	for i, e := range edges {
		if len(d.grants[i]) == 0 {
			t.Errorf("Envoy %d got no lease in %v", i, time.Since(d.began))
		}
		e.tries()
	}
	t.Logf("%d granted in 8 s, by %v %v %v", d.granted(0), len(d.grants[0]), len(d.grants[1]), len(d.grants[2]))
	if n := w.metric(t, "weir_rlqs_streams"); n != 3 {
		t.Fatalf("%v streams", n)
	}
	w.Stop(syscall.SIGTERM)
	if !w.Cmd.ProcessState.Success() {
		t.Errorf("%v: the streams were cut off", w.Cmd.ProcessState)
	}
}

// envoyRuns is what "make envoy" asks for.
var envoyRuns = flag.Bool("envoy", false, "run TestQuotaRuns, and judge how much of a limit three Envoys use")

// TestQuotaRuns drives three Envoys for a minute each, while all kinds of things happen.
func TestQuotaRuns(t *testing.T) {
	if !*envoyRuns {
		t.Skip("takes eight minutes, and judges times: make envoy")
	}
	for _, run := range []struct {
		name  string
		rates []float64
		least float64 // part of the limit that is used after 10 s, or of what is asked if that is less
		at    func(t *testing.T, w **weir, edges []*edge, again func() *weir)
	}{
		{"even", []float64{60, 60, 60}, 0.95, nil},
		{"skewed", []float64{160, 10, 10}, 0.95, nil},
		{"more skewed", []float64{150, 5, 5}, 0.95, nil},
		{"below the limit", []float64{30, 30, 30}, 0.95, nil},
		{"one Envoy is killed at 20 s", []float64{60, 60, 60}, 0.95, func(_ *testing.T, _ **weir, edges []*edge, _ func() *weir) {
			time.Sleep(20 * time.Second)
			_ = edges[0].Cmd.Process.Kill()
		}},
		{"one Envoy is stopped from 20 to 40 s", []float64{60, 60, 60}, 0.95, func(t *testing.T, _ **weir, edges []*edge, _ func() *weir) {
			for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				time.Sleep(20 * time.Second)
				if err := edges[0].Cmd.Process.Signal(signal); err != nil {
					t.Error(err)
				}
			}
		}},
		{"Weir is killed at 20 s for a second", []float64{60, 60, 60}, 0.88, func(_ *testing.T, w **weir, _ []*edge, again func() *weir) {
			time.Sleep(20 * time.Second)
			(*w).Stop(syscall.SIGKILL)
			time.Sleep(time.Second)
			*w = again()
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			addr, store, b := testserver.FreeAddr(t), testserver.StartRedis(t), newBackend(t)
			file := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte(quotaPage(t, "quota: true")), 0o600); err != nil {
				t.Fatal(err)
			}
			begin := func() *weir { return serve(t, file, store.URL(), "--rlqs", "--grpc", addr) }
			w := begin()
			edges := make([]*edge, len(run.rates))
			asked := 0.0
			for i, rate := range run.rates {
				edges[i] = quotaEnvoy(t, addr, b)
				asked += rate
			}
			var events sync.WaitGroup
			if run.at != nil {
				events.Go(func() { run.at(t, &w, edges, begin) })
			}
			d := driveEnvoys(t, edges, run.rates, time.Minute)
			events.Wait()
			n, excess := d.granted(0), d.excess(quotaRate)
			used := float64(d.granted(10*time.Second)) / (min(asked, quotaRate) * 50)
			t.Logf("%d of %v granted, by %d, %d and %d; after 10 s %.1f %% used; largest excess %.0f", n, d.asked, len(d.grants[0]), len(d.grants[1]), len(d.grants[2]), 100*used, excess)
			if n > 60*quotaRate+quotaBurst+quotaLeases || excess > quotaBurst+quotaLeases {
				t.Errorf("%d granted, and an interval has %.0f more than the limit drains", n, excess)
			}
			if used < run.least {
				t.Errorf("%.1f %% used, want %.0f", 100*used, 100*run.least)
			}
			stopped := time.Now()
			w.Stop(syscall.SIGTERM)
			if took := time.Since(stopped); took > 3*time.Second || !w.Cmd.ProcessState.Success() {
				t.Errorf("a stop takes %v and ends with %v", took, w.Cmd.ProcessState)
			}
		})
	}
}
