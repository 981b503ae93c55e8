package promises

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

var (
	only  = flag.String("only", "", "check limiters whose names contain this")
	peers = flag.String("peers", "", "folder that scripts/promises.sh installs other limiters into")
	table = flag.String("table", "", "page whose table is written")
)

func TestMain(m *testing.M) {
	flag.Parse()
	logging.Disable() // Redis stops on purpose
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// TestWeir holds Weir to all promises.
func TestWeir(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("measures for a minute")
	}
	for _, l := range ours() {
		for _, c := range Checks {
			t.Run(l.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				f := c.Run(t, l)
				t.Log(f.Text)
				if f.Broken {
					t.Errorf("%s: %s", c.Question, f.Text)
				}
			})
		}
	}
}

// TestTable checks Weir and all limiters that are installed, one after the other, and writes the
// table between the marks of a page.
func TestTable(t *testing.T) {
	if *table == "" {
		t.Skip("make promises runs it")
	}
	others, missing := Peers(*peers)
	for _, name := range missing {
		t.Logf("not installed, not checked: %s", name)
	}
	var out strings.Builder
	out.WriteString("| limiter | version |")
	for _, c := range Checks {
		fmt.Fprintf(&out, " %s |", c.Name)
	}
	out.WriteString("\n|---|---" + strings.Repeat("|---", len(Checks)) + "|\n")
	for _, l := range append(ours(), others...) {
		if !strings.Contains(l.Name, *only) {
			continue
		}
		fmt.Fprintf(&out, "| %s | %s |", l.Name, l.Version)
		for _, c := range Checks {
			f := Finding{Text: "could not be checked"}
			t.Run(l.Name+"/"+c.Name, func(t *testing.T) { f = c.Run(t, l) })
			t.Logf("%s: %s: %s", l.Name, c.Name, f.Text)
			if f.Broken && !c.Ours {
				f.Text = "**" + f.Text + "**"
			}
			fmt.Fprintf(&out, " %s |", f.Text)
		}
		out.WriteString("\n")
	}
	fmt.Println(out.String())
	if *only != "" {
		return
	}
	page, err := os.ReadFile(*table)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := bytes.Cut(page, []byte("<!-- promises -->\n"))
	_, tail, ends := bytes.Cut(rest, []byte("<!-- end of promises -->\n"))
	if !found || !ends {
		t.Fatalf("%s has no marks for the table", *table)
	}
	fmt.Fprintf(&out, "\nMeasured on %s with %s on %s/%s with %d processors, in one run.\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	text := string(head) + "<!-- promises -->\n" + out.String() + "<!-- end of promises -->\n" + string(tail)
	if err := os.WriteFile(*table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestModel judges answers that are certain to be right or wrong.
func TestModel(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	for name, c := range map[string]struct {
		calls []call
		wrong int // the call that is wrong; -1: none
	}{
		"a burst":           {[]call{{0, 1, 5, true}, {2, 3, 1, false}}, -1},
		"a burst too large": {[]call{{0, 1, 5, true}, {2, 3, 1, true}}, 1},
		"refused fresh":     {[]call{{0, 1, 1, false}}, 0},
		"after a wait":      {[]call{{0, 1, 5, true}, {2 * second, 2*second + 1, 5, true}}, -1},
		"refused too long":  {[]call{{0, 1, 5, true}, {3 * second, 3*second + 1, 1, false}}, 1},
		"in doubt":          {[]call{{0, second, 5, true}, {second, 2 * second, 1, false}}, -1},
		"more than a burst": {[]call{{0, 1, 6, false}}, -1},
	} {
		m := newModel(Setting{Count: 5, Burst: 5, Period: 2 * time.Second})
		wrong := -1
		for i, call := range c.calls {
			if m.judge(call) != "" && wrong < 0 {
				wrong = i
			}
		}
		if wrong != c.wrong {
			t.Errorf("%s: call %d is judged wrong, want %d", name, wrong, c.wrong)
		}
	}
	granted := []call{{0, 1, 3, true}, {second, second + 1, 4, true}, {2 * second, 2*second + 1, 5, true}, {2 * second, 2*second + 1, 9, false}}
	if most := mostIn(granted, 2*time.Second); most != 9 {
		t.Errorf("%d in two seconds, want 9", most)
	}
}

// A toy is a limiter of whole buckets with a fault.
type toy struct {
	mu   sync.Mutex
	s    Setting
	used map[string]float64
	at   map[string]time.Time
	fault
}

type fault struct {
	extra           float64 // units above the burst
	chargesRefusals bool
	tells           float64 // times the wait that is right
	forgets         bool    // other keys
	deaf            bool    // to another limit
}

func (f *toy) take(key string, cost int, _ string) Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forgets && len(f.used) > 1000 {
		clear(f.used)
	}
	rate := float64(f.s.Count) / f.s.Period.Seconds()
	now := time.Now()
	f.used[key] = max(0, f.used[key]-now.Sub(f.at[key]).Seconds()*rate)
	f.at[key] = now
	over := f.used[key] + float64(cost) - float64(f.s.Burst) - f.extra
	if over <= 0 || f.chargesRefusals {
		f.used[key] += float64(cost)
	}
	if over <= 0 {
		return Answer{Granted: true}
	}
	return Answer{Retry: time.Duration(f.tells * over / rate * 1e9)}
}

// TestChecksCatch: each check must see its fault, and none without one.
func TestChecksCatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	for name, c := range map[string]struct {
		check func(testing.TB, Limiter) Finding
		fault fault
		want  bool
	}{
		"exact, right":     {exact, fault{tells: 1}, false},
		"exact":            {exact, fault{tells: 1, extra: 1}, true},
		"refusals, right":  {refusedIsFree, fault{tells: 1}, false},
		"refusals":         {refusedIsFree, fault{tells: 1, chargesRefusals: true}, true},
		"retry, right":     {retry, fault{tells: 1}, false},
		"retry, too early": {retry, fault{tells: 0.5}, true},
		"retry, never":     {retry, fault{tells: 0, extra: 1e9}, true},
		"keys, right":      {manyKeys, fault{tells: 1}, false},
		"keys":             {manyKeys, fault{tells: 1, forgets: true}, true},
		"limits, right":    {anotherLimit, fault{tells: 1}, false},
		"limits":           {anotherLimit, fault{tells: 1, deaf: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.check(t, Limiter{Name: "toy", Open: func(_ testing.TB, s Setting, _ func(string) string) Target {
				broken := &toy{s: s, used: map[string]float64{}, at: map[string]time.Time{}, fault: c.fault}
				return &library{take: broken.take, change: func(s Setting) {
					broken.mu.Lock()
					defer broken.mu.Unlock()
					if !broken.deaf {
						broken.s = s
					}
				}}
			}})
			if f.Broken != c.want {
				t.Errorf("%q, broken: %v, want %v", f.Text, f.Broken, c.want)
			}
		})
	}
}
