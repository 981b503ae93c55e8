package chaos

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

var full = flag.Bool("full", false, "do more of everything, judge times too, print what was measured")

// rounds is how often a fault strikes.
func rounds() int {
	if *full {
		return 8
	}
	return 1
}

// A row is one line of the report.
type row struct {
	fault, promise, measured string
	red                      []string
	unjudged                 bool
}

// fail makes the row red, and its test.
func (r *row) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	r.red = append(r.red, fmt.Sprintf(format, args...))
	t.Errorf(format, args...)
}

var reported struct {
	sync.Mutex
	rows []row
}

func report(r row) {
	reported.Lock()
	defer reported.Unlock()
	reported.rows = append(reported.rows, r)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("faults take seconds each, which -short does not have")
		return
	}
	redis.SetLogger(silent{})
	if !*full {
		// Worlds wait more than they work.
		_ = flag.Set("test.parallel", "6")
	}
	code := run(m)
	// A pool of go-redis whose server is away looks once a second whether it was closed.
	dialling := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	if err := goleak.Find(dialling); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if *full {
		table()
	}
	os.Exit(code)
}

// silent keeps the client of Redis from telling of what is done to it.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(m *testing.M) int {
	var err error
	if buildDir, err = os.MkdirTemp("", "weir-chaos-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(buildDir)
	return m.Run()
}

// buildDir lives as long as the tests of the package.
var buildDir string

// table prints the report: faults first, then the mutants.
func table() {
	const mutant = "mutant: "
	slices.SortStableFunc(reported.rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(strings.Count(a.fault, mutant), strings.Count(b.fault, mutant)),
			strings.Compare(a.fault, b.fault))
	})
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nVERDICT\tFAULT\tPROMISE\tMEASURED")
	for _, r := range reported.rows {
		verdict := "green"
		switch {
		case len(r.red) > 0:
			verdict = "RED"
		case r.unjudged:
			verdict = "late" // this machine, not Weir
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", verdict, r.fault, r.promise, brief(r.measured))
		for _, why := range r.red {
			fmt.Fprintf(w, "\t\t\t%s\n", brief(why))
		}
	}
	_ = w.Flush()
}

// brief is the beginning of a text.
func brief(text string) string {
	const most = 240
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > most {
		line = line[:most] + "…"
	}
	return line
}

// A control is how late this machine wakes a goroutine that does nothing else, and runs a server
// that answers one: what explains outages and errors that Weir does not.
type control struct {
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	late    time.Duration // the worst delay
}

// startControl measures until end. Answers, if it is not nil, asks a server past all faults.
func startControl(answers func()) *control {
	c := &control{stop: make(chan struct{})}
	const nap = time.Millisecond
	c.running.Go(func() { c.measure(nap, func() {}) })
	if answers != nil {
		c.running.Go(func() { c.measure(nap, answers) })
	}
	return c
}

// measure notes how long a nap and what follows take beyond the nap, again and again.
func (c *control) measure(nap time.Duration, then func()) {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		began := time.Now()
		time.Sleep(nap)
		then()
		c.mu.Lock()
		c.late = max(c.late, time.Since(began)-nap)
		c.mu.Unlock()
	}
}

// end returns the worst delay that there was.
func (c *control) end() time.Duration {
	close(c.stop)
	c.running.Wait()
	return c.late
}
