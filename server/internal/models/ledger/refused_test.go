package ledger

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// monthOf returns the rows of a month.
func monthOf(t testing.TB, l *Ledger, month string) []Row {
	t.Helper()
	rows, err := l.Month(context.Background(), month)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestCountRefused wants refused requests counted in the month in which they were refused, all of a
// row with one record, beside what the row has used.
func TestCountRefused(t *testing.T) {
	t.Parallel()
	for name, open := range books(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := opened(t, open())
			l.Settled(settlement("1", "ann", 5))
			for i := range 100 {
				l.CountRefused(now, "ann", "web", "m")
				l.CountRefused(now.AddDate(0, i%2, 0), "bo", "", "")
			}
			l.gatherRefused()
			if n := l.Waiting(); n != 4 {
				t.Errorf("%d wait", n)
			}
			l.flushed(t)
			l.CountRefused(now, "ann", "web", "m")
			if err := l.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []Row{
				{User: "ann", Team: "web", Model: "m", Numbers: Numbers{Requests: 1, Input: 3, Output: 4, USD: 5, Refused: 101}},
				{User: "bo", Numbers: Numbers{Refused: 50}},
			}
			if diff := cmp.Diff(want, monthOf(t, l, "2026-11")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want[1:], monthOf(t, l, "2026-12")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCountRefusedIsBounded wants refused requests of many rows to be counted together, and those
// that have no room beside waiting settlements to be counted later.
func TestCountRefusedIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, newMemory())
		for i := range 2 * maxRefused {
			l.CountRefused(now, fmt.Sprint("user", i), "", "")
		}
		if len(l.refused) != maxRefused+1 {
			t.Errorf("%d rows", len(l.refused))
		}
		for i := range maxWaiting {
			l.Settled(settlement(fmt.Sprint(i), "ann", 1))
		}
		if l.gatherRefused(); len(l.refused) != maxRefused+1 || l.Waiting() != maxWaiting {
			t.Errorf("%d rows, %d wait", len(l.refused), l.Waiting())
		}
		l.Start()
		time.Sleep(refusedTime + pause)
		synctest.Wait()
		refused, others := int64(0), int64(0)
		for _, r := range monthOf(t, l, "2026-11") {
			if refused += r.Refused; r.User == "other" {
				others += r.Refused
			}
		}
		if refused != 2*maxRefused || others != maxRefused || len(l.refused) != 0 {
			t.Errorf("%d refused, %d of them in no row of their own, %d rows left", refused, others, len(l.refused))
		}
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
