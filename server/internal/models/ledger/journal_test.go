package ledger

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/journal"
)

// journaling returns a ledger that is not started, on a book, with a journal in a folder, and what
// ends the journal with all that it was given.
func journaling(t testing.TB, b book, dir string, log *bytes.Buffer) (*Ledger, func()) {
	t.Helper()
	j, err := journal.Open(journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Start()
	l, err := New(Options{Journal: j, Domain: "llm", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l.book = b
	end := func() {
		if err := j.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return l, end
}

// fromJournals returns the rows of a month in folders of journals, as the ledger has them.
func fromJournals(t testing.TB, month string, dirs ...string) ([]Row, Found) {
	t.Helper()
	sums := newMemory()
	l := opened(t, sums)
	n := 0
	found, err := ReadJournals(dirs, "llm", month, func(r *Row) {
		n++
		s := &Settlement{ID: fmt.Sprint(n), At: now, User: r.User, Team: r.Team, Model: r.Model, Used: r.Numbers}
		rec := l.recordOf(s)
		rec.month = month
		sums.one(rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	return monthOf(t, l, month), found
}

// TestJournalIsTheLedger wants the ledger to have exactly what the journal has, and both what was
// used, on two instances that are killed at any time and started again: what was not recorded is
// recorded then, once, and what was not settled is named.
func TestJournalIsTheLedger(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.StartRedis(t).Addr())
	runs := new(atomic.Int64)
	rapid.Check(t, func(r *rapid.T) {
		b := &shared{client: c, tag: fmt.Sprintf("%d:{ledger}:", runs.Add(1)), fields: maxFields}
		type instance struct {
			*Ledger
			dir  string
			end  func()
			open []*Settlement
		}
		start := func(i *instance) {
			i.Ledger, i.end = journaling(t, b, i.dir, new(bytes.Buffer))
			i.recovering = true
			i.recover()
		}
		both := []*instance{{dir: t.TempDir()}, {dir: t.TempDir()}}
		for _, i := range both {
			start(i)
		}
		want, ids := newMemory(), 0
		expect := opened(t, want)
		add := func(s *Settlement) { want.one(expect.recordOf(s)) }
		name := rapid.SampledFrom([]string{"ann", "bo", ""})
		kill := func(i *instance) {
			for _, s := range i.open {
				lost := *s
				lost.Charges, lost.Used = nil, Numbers{Requests: 1, Unsettled: s.HeldUSD}
				add(&lost)
			}
			i.open = nil
			i.end()
			start(i)
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			i := both[rapid.IntRange(0, 1).Draw(r, "instance")]
			switch rapid.SampledFrom([]string{"hold", "hold", "settle", "settle", "drop", "refuse", "gather", "flush", "mark", "kill"}).Draw(r, "step") {
			case "hold":
				ids++
				s := &Settlement{ID: fmt.Sprint("r", ids), At: now.AddDate(0, -rapid.IntRange(0, 1).Draw(r, "month"), 0), User: name.Draw(r, "user"), Model: "m", HeldUSD: int64(ids)}
				i.Held(s)
				i.open = append(i.open, s)
			case "settle":
				if len(i.open) > 0 {
					s := i.open[0]
					i.open = i.open[1:]
					s.Used = Numbers{Requests: 1, Output: 2, USD: rapid.Int64Range(0, 1e9).Draw(r, "usd"), Unsettled: rapid.Int64Range(-5, 5).Draw(r, "unsettled")}
					s.Charges = []Charge{charge(t, s.User, s.Used.USD, 5)}
					i.Settled(s)
					add(s)
				}
			case "drop":
				if len(i.open) > 0 {
					i.Dropped(i.open[0])
					i.open = i.open[1:]
				}
			case "refuse":
				i.CountRefused(now, "ann", "web", "m")
				i.gatherRefused() // An instance that is killed takes those with it that were not gathered.
				add(&Settlement{ID: "x", At: now, User: "ann", Team: "web", Model: "m", Used: Numbers{Refused: 1}})
			case "flush":
				i.flushed(t)
			case "mark":
				i.mark()
			case "kill":
				kill(i)
			}
		}
		for _, i := range both {
			kill(i)
			i.flushed(t)
			if i.mark(); i.unmarked {
				r.Fatal("the journal has no mark in the end")
			}
			i.end()
		}
		for _, month := range []string{"2026-10", "2026-11"} {
			l := opened(t, b)
			rows, found := fromJournals(t, month, both[0].dir, both[1].dir)
			if diff := cmp.Diff(monthOf(t, expect, month), rows); diff != "" || found != (Found{}) {
				r.Fatalf("%s of the journals, %+v (-want +got):\n%s", month, found, diff)
			}
			if diff := cmp.Diff(rows, monthOf(t, l, month)); diff != "" {
				r.Fatalf("%s of the ledger (-journals +ledger):\n%s", month, diff)
			}
		}
		all := []Charge{charge(t, "ann", 0, 5), charge(t, "bo", 0, 5), charge(t, "", 0, 5)}
		wanted, _ := want.used(t.Context(), all)
		if got, err := b.used(t.Context(), all); err != nil || !cmp.Equal(wanted, got) {
			r.Fatalf("%v, %v, want %v", got, err, wanted)
		}
	})
}

// TestJournalLines wants the lines of a request to be those of the page, with what finance needs to
// compute the dollars again.
func TestJournalLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, end := journaling(t, newMemory(), dir, new(bytes.Buffer))
	l.Zone = time.FixedZone("", 3600)
	s := settlement("R1", "ann", 651, charge(t, "ann", 651, 5))
	s.Charges[0].Limit = monthly(t, 5)
	s.At = time.Date(2026, 10, 31, 23, 30, 0, 0, time.UTC)
	s.Labels, s.Written, s.HeldUSD = map[string]string{"key": "ann", "team": "web"}, 2, 1_000_001
	s.Used.Unsettled = -1
	s.Price = &config.Model{Name: config.NewGlob("gpt-*"), Input: 3_000_000, Output: 15_000_000}
	l.Held(s)
	l.Settled(s)
	end()
	got := ""
	if err := journal.Read(dir, time.Time{}, func(line []byte) error { got += string(line) + "\n"; return nil }); err != nil {
		t.Fatal(err)
	}
	pages.Hold(t, "docs/models.md", regexp.MustCompile(`"time":"2[0-9-]*T[0-9:.]*Z"`), func(pages.Block) string { return got })
}

// TestReadJournals wants what is not of the month and the domain left out, and what the journals lack
// named.
func TestReadJournals(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	save := func(dir, day string, lines ...string) {
		if err := os.WriteFile(filepath.Join(dir, day+".jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const of = `"domain":"llm","month":"2026-11","user":"ann","model":"m"`
	settled := func(id, more string) string {
		return `{"event":"settled","id":"` + id + `",` + of + `,"requests":1,"usd":"0.1"` + more + `}`
	}
	save(dir, "2026-10-30", settled("0", "")) // The month had not begun anywhere.
	save(dir, "2026-10-31", `{"event":"open","id":"1",`+of+`,"held_usd":"2"}`, settled("1", ""))
	save(dir, "2026-11-20", `{"event":"open","id":"2",`+of+`,"held_usd":"2"}`, `{"event":"open","id":"3",`+of+`,"held_usd":"0.31"}`,
		`{"event":"lost","lines":17}`, `{"half`, "", `{"event":"settled","id":"4",`+of+`,"requests":1,"usd":"a lot"}`, `{"event":"settled","id":"5",`+of+`}`,
		strings.ReplaceAll(settled("6", ""), "2026-11", "2026-12"), strings.ReplaceAll(settled("7", ""), "llm", "other"))
	save(dir, "2026-12-05", settled("2", `,"unsettled_usd":"-0.05"`), `{"event":"recorded"}`)
	save(other, "2026-11-02", `{"event":"open","id":"8",`+of+`,"held_usd":"9"}`, `{"event":"dropped","id":"8",`+of+`}`, `{"event":"refused","id":"9",`+of+`,"requests":0,"refused":3,"usd":"0"}`)
	rows, found := fromJournals(t, "2026-11", dir, other)
	if diff := cmp.Diff([]Row{{User: "ann", Model: "m", Numbers: Numbers{Requests: 2, USD: 200_000, Refused: 3, Unsettled: -50_000}}}, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := (Found{Open: 1, OpenUSD: 310_000, Missing: 17, Unreadable: 3}); found != want {
		t.Errorf("%+v, want %+v", found, want)
	}
}

// TestRecoverLate wants settlements of a process that was killed long ago not to be entered, since
// they may count twice, and to be named; and those that nobody settled to be entered all the same.
func TestRecoverLate(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), new(bytes.Buffer)
	old, late := time.Now().UTC().Add(-enterWithin-time.Minute), time.Now().UTC().Add(-enterWithin+time.Hour)
	line := func(event, id string, at time.Time, more string) string {
		return fmt.Sprintf(`{"time":%q,"event":%q,"id":%q,"domain":"llm","held":"2026-11-15T12:00:00Z","month":"2026-11","user":"ann"%s}`, at.Format(time.RFC3339Nano), event, id, more)
	}
	const used = `,"requests":1,"usd":"0.1"`
	text := strings.Join([]string{
		line("settled", "1", old, used), line("recorded", "", old, ""), line("settled", "2", old, used), line("open", "3", old, `,"held_usd":"2"`), line("settled", "4", late, used), "",
	}, "\n")
	if err := os.WriteFile(filepath.Join(dir, old.Format("2006-01-02")+".jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ := journaling(t, newMemory(), dir, log)
	l.recover()
	l.flushed(t)
	if diff := cmp.Diff([]Row{{User: "ann", Numbers: Numbers{Requests: 2, USD: 100_000, Unsettled: 2_000_000}}}, monthOf(t, l, "2026-11")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "settlements=1 unsettled=1") {
		t.Error(log)
	}
}

// TestStopMarks wants a process that stops in order to leave nothing to enter, and one that had to
// drop settlements to leave them to the next.
func TestStopMarks(t *testing.T) {
	t.Parallel()
	for dropped, want := range map[bool]int{false: 0, true: 1} {
		dir := t.TempDir()
		l, end := journaling(t, newMemory(), dir, new(bytes.Buffer))
		l.Settled(settlement("1", "ann", 1))
		if dropped {
			full := make([]*record, maxWaiting)
			full, l.waiting = l.waiting, full
			l.Settled(settlement("2", "ann", 1))
			l.waiting = full
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		end()
		next, _ := journaling(t, newMemory(), dir, new(bytes.Buffer))
		if next.recover(); min(next.Waiting(), 1) != want {
			t.Errorf("dropped %v: %d settlements are entered again", dropped, next.Waiting())
		}
	}
}
