package gate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// lines keeps what is logged.
type lines struct{ testserver.Output }

func (l *lines) all() []string { return slices.Collect(strings.Lines(l.String())) }

// failing is a store that fails while its error is set.
type failing struct{ err error }

func (f *failing) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		if a.Err = f.err; f.err == nil {
			for i := range a.Decisions {
				a.Decisions[i].Outcome = weir.Granted
			}
		}
	}
}

// TestTroubleIsLoggedOnce: the first failure and the recovery, whatever is between them.
func TestTroubleIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, store := new(lines), new(failing)
		l, err := weir.NewLimiter(store, "test", weir.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		g := Gate{Logger: slog.New(slog.NewTextHandler(log, nil))}
		ask := func(err error) {
			store.err = err
			g.Take(t.Context(), l, "k", 1)
		}
		down := errors.New("the plug is out")
		ask(nil)
		for range 1000 {
			ask(down)
		}
		// One that succeeds in between ends nothing.
		ask(nil)
		ask(down)
		if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], "the plug is out") {
			t.Fatalf("logged %q", got)
		}
		time.Sleep(2 * time.Second)
		for range 10 {
			ask(nil)
		}
		if got := log.all(); len(got) != 2 || !strings.Contains(got[1], "decisions again") || !strings.Contains(got[1], "undecided_for=2s failed=1001") {
			t.Fatalf("logged %q", got)
		}
		ask(down)
		if got := log.all(); len(got) != 3 {
			t.Errorf("the next failure: logged %q", got)
		}
		(&Gate{}).Take(t.Context(), l, "k", 1) // without a logger
	})
}
