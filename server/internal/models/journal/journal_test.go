package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// counts counts.
type counts struct{ failed, lost atomic.Int64 }

func (c *counts) Failed() { c.failed.Add(1) }
func (c *counts) Lost()   { c.lost.Add(1) }

// opened opens a journal, which stops with the test.
func opened(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, j) })
	return j
}

func stopped(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// lines returns the lines of a folder since a day.
func lines(t testing.TB, dir string, from time.Time) (all []string) {
	t.Helper()
	if err := Read(dir, from, func(line []byte) error { all = append(all, string(line)); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDays wants lines in order in a file for each UTC day, for their user alone, the old files
// removed and others' left alone, and no older file written again when the clock is set back.
func TestDays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "journal")
	synctest.Test(t, func(t *testing.T) {
		j := opened(t, Options{Dir: dir})
		day := func(n int) string {
			return filepath.Join(dir, time.Now().UTC().AddDate(0, 0, n).Format(dayForm)+extension)
		}
		old, kept := day(-101), []string{day(-100), filepath.Join(dir, "notes.jsonl"), filepath.Join(dir, "1999-01-01.txt")}
		for _, name := range append(kept, old) {
			if err := os.WriteFile(name, []byte("old\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j.Start()
		// On the second day another old file goes.
		for i := range 4 {
			j.Append(fmt.Appendf(nil, "%d", i))
			j.Append([]byte("and"))
			synctest.Wait()
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
				t.Errorf("%d files, %v", len(entries), err)
			}
			time.Sleep(12 * time.Hour)
		}
		stopped(t, j)
		if got := strings.Join(lines(t, dir, time.Time{}), ","); got != "0,and,1,and,2,and,3,and" {
			t.Error(got)
		}
		if got := strings.Join(lines(t, dir, time.Now().Add(-24*time.Hour)), ","); got != "2,and,3,and" {
			t.Errorf("the last day: %s", got)
		}
		for _, name := range kept[1:] {
			if _, err := os.Stat(name); err != nil {
				t.Error(err)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, "2000-01-01.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		j = opened(t, Options{Dir: dir})
		j.day = "2999-01-01"
		j.Start()
		j.Append([]byte("later"))
		stopped(t, j)
		if text, err := os.ReadFile(filepath.Join(dir, "2999-01-01.jsonl")); err != nil || string(text) != "later\n" {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// TestLock wants a folder to belong to one journal at a time.
func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := opened(t, Options{Dir: dir})
	_, err := Open(Options{Dir: dir})
	if invalid := new(weir.InvalidError); !errors.As(err, &invalid) || invalid.Field != "journal" {
		t.Errorf("%v", err)
	}
	stopped(t, first) // It was not started.
	stopped(t, first)
	opened(t, Options{Dir: dir})
	if _, err := Open(Options{Dir: filepath.Join(dir, lockName)}); err == nil {
		t.Error("a file is a folder")
	}
}

// TestTorn wants a line that another process has not written to its end to spoil no other, and Past
// to be what was there before.
func TestTorn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, time.Now().UTC().Format(dayForm)+extension)
	const before = "one\n{\"half"
	if err := os.WriteFile(name, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	j := opened(t, Options{Dir: dir})
	j.Start()
	j.Append([]byte("two"))
	long := strings.Repeat("x", maxLine)
	j.Append([]byte(long))
	j.Append([]byte("three"))
	stopped(t, j)
	if got := strings.Join(lines(t, dir, time.Time{}), ","); got != "one,{\"half,two,,three" {
		t.Errorf("%.100q", got)
	}
	var past []string
	if err := j.Past(time.Hour, func(line []byte) error { past = append(past, string(line)); return nil }); err != nil || strings.Join(past, ",") != "one,{\"half" {
		t.Errorf("%q, %v", past, err)
	}
	stop := errors.New("enough")
	if err := j.Past(time.Hour, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

// TestFailure wants lines to wait in bounded memory while the folder cannot be written, one ERROR a
// minute, nothing written twice, and in the end a line that says how many are missing.
func TestFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		seen, log := new(counts), new(bytes.Buffer)
		j := opened(t, Options{Dir: dir, Observer: seen, Logger: slog.New(slog.NewTextHandler(log, nil))})
		// A folder in the place of the file is a failure for every user.
		name := filepath.Join(dir, time.Now().UTC().Format(dayForm)+extension)
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		j.Start()
		j.Append([]byte("first"))
		synctest.Wait()
		big := bytes.Repeat([]byte("x"), maxWaiting/4)
		for range 3 {
			j.Append(big)
		}
		j.Append([]byte("last"))
		j.Append(big)
		j.Append([]byte("after"))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=ERROR"); n != 2 || seen.failed.Load() < 80 || seen.lost.Load() != 2 {
			t.Errorf("%d errors, %d failures, %d lost\n%s", n, seen.failed.Load(), seen.lost.Load(), log)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * retryTime)
		j.Append([]byte("again"))
		stopped(t, j)
		got := lines(t, dir, time.Time{})
		if len(got) != 7 || got[0] != "first" || got[4] != "last" || got[6] != "again" {
			t.Fatalf("%d lines", len(got))
		}
		var missing struct {
			Event string
			Lines int
		}
		if err := json.Unmarshal([]byte(got[5]), &missing); err != nil || missing.Event != EventLost || missing.Lines != 2 {
			t.Errorf("%s, %v", got[5], err)
		}
	})
}

// TestPartial wants a batch that was written in part to be cut off and written again.
func TestPartial(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	if err := j.open(time.Now().UTC()); err != nil {
		t.Fatal(err)
	}
	j.batch = []byte("one\n")
	if err := j.write(); err != nil {
		t.Fatal(err)
	}
	// A part of a batch, as a disk that is full leaves it.
	whole := j.file
	if _, err := whole.WriteString("tw"); err != nil {
		t.Fatal(err)
	}
	read, err := os.Open(whole.Name())
	if err != nil {
		t.Fatal(err)
	}
	j.file, j.batch = read, []byte("two\n") // It can be neither written nor cut.
	if err := j.write(); err == nil || j.size != int64(len("one\n")) {
		t.Errorf("%v, %d", err, j.size)
	}
	j.file = whole
	if err := whole.Truncate(j.size); err != nil {
		t.Fatal(err)
	}
	if err := j.write(); err != nil {
		t.Fatal(err)
	}
	j.batch = nil
	_ = read.Close()
	stopped(t, j)
	if got := strings.Join(lines(t, dir, time.Time{}), ","); got != "one,two" {
		t.Errorf("%q", got)
	}
}

// TestRemoved wants a file that somebody removes or moves away to be made anew.
func TestRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := opened(t, Options{Dir: dir})
		j.Start()
		j.Append([]byte("one"))
		synctest.Wait()
		name := filepath.Join(dir, time.Now().UTC().Format(dayForm)+extension)
		if err := os.Rename(name, name+".old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * syncTime)
		j.Append([]byte("two"))
		stopped(t, j)
		if got := strings.Join(lines(t, dir, time.Time{}), ","); got != "two" {
			t.Errorf("%q", got)
		}
	})
}

// TestSaved wants a line to be on the disk once that is said, and an end to waiting for one that cannot be.
func TestSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := opened(t, Options{Dir: dir})
		j.Start()
		number := j.Append([]byte("one"))
		if err := j.Saved(t.Context(), number); err != nil || number != 1 {
			t.Errorf("%d, %v", number, err)
		}
		if got := strings.Join(lines(t, dir, time.Time{}), ","); got != "one" {
			t.Errorf("%q", got)
		}
		// A folder in the place of the next day's file is a failure for every user.
		name := filepath.Join(dir, time.Now().UTC().AddDate(0, 0, 1).Format(dayForm)+extension)
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		number = j.Append([]byte("two"))
		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := j.Saved(late, number); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := j.Saved(t.Context(), number); err != nil {
			t.Error(err)
		}
		stopped(t, j)
		if err := j.Saved(t.Context(), j.Append([]byte("three"))); err == nil {
			t.Error("a line is saved after the end")
		}
	})
}

// TestBetween wants the lines of the days that are asked for.
func TestBetween(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for day := 1; day <= 4; day++ {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("2026-11-0%d.jsonl", day)), fmt.Appendf(nil, "%d\n", day), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := opened(t, Options{Dir: dir})
	at := func(day int) time.Time { return time.Date(2026, 11, day, 13, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		from, until time.Time
		want        string
	}{{at(2), at(4), "23"}, {at(3), time.Time{}, "34"}, {time.Time{}, at(3), "12"}, {at(4), at(4), ""}} {
		got := ""
		if err := j.Between(c.from, c.until, func(line []byte) error { got += string(line); return nil }); err != nil || got != c.want {
			t.Errorf("%s to %s: %q, %v", c.from, c.until, got, err)
		}
	}
}

// TestReadNothing wants a folder without files to be named.
func TestReadNothing(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if err := Read(dir, time.Time{}, nil); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v", err)
		}
	}
}
