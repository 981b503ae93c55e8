package ledger

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/models/journal"
)

// A restarting instance is one with a journal, which starts again and again.
type restarting struct {
	*instance
	dir string
	end func()
}

// restart starts an instance with the journal of a folder; empty: without one.
func restart(t *testing.T, c *redis.Client, dir string) *restarting {
	t.Helper()
	i := &restarting{newInstance(t, c), dir, func() {}}
	if dir == "" {
		return i
	}
	j, err := journal.Open(journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Start()
	i.Journal = j
	i.end = func() {
		if err := j.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(i.end)
	i.recovering = true
	i.recover()
	return i
}

// stop stops an instance in order.
func (i *restarting) stop() {
	i.t.Helper()
	if err := i.Stop(i.t.Context()); err != nil {
		i.t.Error(err)
	}
	i.end()
}

func emptied(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestEmptiedAfterRestart wants a store that came back empty to have what an instance had recorded before
// it started again, too, once, whether it was emptied before that or after; and one that kept its data to
// get nothing.
func TestEmptiedAfterRestart(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.StartRedis(t).Addr())
	dir, want := t.TempDir(), map[string]int64{}
	one := restart(t, c, dir)
	settle := func(user string, micros int64) {
		one.settle(user, micros)
		want[user] += micros
	}
	again := func(step string, inOrder bool) {
		t.Helper()
		if inOrder {
			one.stop()
		} else {
			one.end()
		}
		one = restart(t, c, dir)
		one.follows()
		one.written()
		one.want(step, want)
	}
	empty := func(step string) {
		t.Helper()
		emptied(t, c)
		one.follows()
		one.want(step, want)
	}
	settle("ann", 1_000_000)
	for range 3 {
		settle("cy", 900_000_000) // together more than one charge may have
	}
	one.written()
	again("restarted", true)
	empty("emptied after a restart")
	again("restarted after it was emptied, without a mark", false)
	settle("bo", 7)
	one.written()
	again("killed", false)
	settle("ann", 5)
	one.written()
	empty("emptied after a kill")
	empty("emptied again")
	settle("ann", 11)
	one.written()
	again("restarted once more", true)

	// It is emptied while no instance runs.
	one.stop()
	emptied(t, c)
	one = restart(t, c, dir)
	one.follows()
	one.want("emptied meanwhile", want)
	again("and restarted", false)
	again("and again", true)

	// A store that this instance has followed before has what it had recorded.
	earlier := ""
	for epoch := range one.known {
		if epoch != one.epoch {
			earlier = epoch
		}
	}
	if err := c.Set(t.Context(), "weir:{ledger/llm}:epoch", earlier, 0).Err(); err != nil || earlier == "" {
		t.Fatal(earlier, err)
	}
	again("an earlier epoch", true)

	// Without a journal, what it had recorded before is lost.
	one.stop()
	one = restart(t, c, "")
	one.follows()
	one.want("without a journal", want)
	want = map[string]int64{"ann": 0, "bo": 0, "cy": 0}
	empty("emptied without a journal")
}

// TestEmptiedWhileItRuns wants an instance that is started with its journal to give back by itself what it
// had recorded before, and to record what is settled meanwhile.
func TestEmptiedWhileItRuns(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.StartRedis(t).Addr())
	dir := t.TempDir()
	one := restart(t, c, dir)
	one.settle("ann", 9)
	one.written()
	one.stop()
	emptied(t, c)
	j, err := journal.Open(journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Start()
	next := newInstance(t, c)
	next.Journal = j
	next.Start()
	for i := range 20 {
		next.settle("ann", 100)
		next.settle("bo", int64(i))
	}
	testserver.Eventually(t, "all is recorded", func() bool {
		used, err := next.Used(t.Context(), []Charge{limited(t, "ann", 0)})
		return err == nil && used[0] == 2009 && next.Waiting() == 0
	})
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := j.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	next.want("at the end", map[string]int64{"ann": 2009, "bo": 190})
}

// TestEmptiedWaitsForJournal wants nothing restored before the disk says so: another process might do it
// again.
func TestEmptiedWaitsForJournal(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.StartRedis(t).Addr())
	one := restart(t, c, t.TempDir())
	one.settle("ann", 9)
	one.written()
	one.end()
	emptied(t, c)
	for range 2 {
		if err := one.follow(t.Context()); err == nil {
			t.Fatal("it is restored without a line")
		}
		if one.mark() {
			t.Fatal("all is said to be recorded")
		}
	}
	newInstance(t, c).want("not yet", map[string]int64{"ann": 0})
}

// TestRecall wants what is current read from the journal: windows and the month of now, of the domain, up
// to the last mark, in older lines without limits, and further back for a window that is longer.
func TestRecall(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC()
	long := func(days int) time.Time { return at.AddDate(0, 0, -days) }
	dir, n := t.TempDir(), 0
	line := func(domain string, month time.Time, limit string, from, until time.Time) string {
		n++
		return fmt.Sprintf(`{"time":%q,"event":"settled","id":"%d","domain":%q,"held":%q,"month":%q,"user":"ann","labels":{"event":"open"},"model":"m","requests":1,"usd":"0.000001","charges":[{"key":"k",%s"count":"usd","units":1,"from":%q,"until":%q}]}`,
			at.Format(time.RFC3339Nano), n, domain, month.Format(time.RFC3339Nano), month.Format(monthForm), limit, from.Format(time.RFC3339), until.Format(time.RFC3339)) + "\n"
	}
	const limit = `"limit":"5/year fixed_window","hash_tag":"tag",`
	mark := func(domain, epoch string) string {
		return fmt.Sprintf(`{"event":"recorded","domain":%q,"epoch":%q}`, domain, epoch) + "\n"
	}
	year := [2]time.Time{long(90), at.AddDate(0, 0, 200)}
	for day, text := range map[int]string{
		95: line("llm", long(95), limit, year[0], year[1]), // nothing before its start is read
		80: line("llm", long(80), limit, year[0], year[1]) + line("other", long(80), limit, year[0], year[1]),
		0: line("llm", at, limit, year[0], year[1]) + line("llm", at, "", at.Add(-time.Hour), at.Add(time.Hour)) + line("llm", at, limit, long(2), long(1)) +
			line("other", at, limit, year[0], year[1]) + line("llm", at.AddDate(0, -2, 0), "", at.Add(-time.Hour), at.Add(time.Hour)) + mark("llm", "E") +
			line("llm", at, limit, year[0], year[1]),
	} {
		if err := os.WriteFile(filepath.Join(dir, long(day).Format("2006-01-02")+".jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recalled := func() *Ledger {
		l, end := journaling(t, &shared{}, dir, new(bytes.Buffer))
		defer end()
		if err := l.recall(); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := recalled()
	var got []string
	for name, w := range l.own.windows {
		got = append(got, fmt.Sprint(strings.HasPrefix(name, Window{year[0].Truncate(time.Second).UnixMicro(), year[1].Truncate(time.Second).UnixMicro()}.name()), " ", w.units, " ", w.charge.Limit != nil, " ", w.charge.HashTag))
	}
	if text := strings.Join(got, ","); text != "true 2 true tag,false 2 false " && text != "false 2 false ,true 2 true tag" {
		t.Errorf("windows: %s", text)
	}
	if len(l.own.months) != 1 || l.own.months[at.Format(monthForm)+" "+rowOf("ann", "", "m")].used.USD != 3 {
		t.Errorf("months: %v", l.own.months)
	}
	if l.epoch != "E" || !l.known["E"] {
		t.Errorf("epoch %q, known %v", l.epoch, l.known)
	}
	// A process that wrote no epoch, or another domain's, may have seen the store emptied.
	for _, last := range []string{mark("other", "F"), mark("", "")} {
		file, err := os.OpenFile(filepath.Join(dir, at.Format("2006-01-02")+".jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(last); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		if l := recalled(); l.epoch != "" || !l.known["E"] || l.known["F"] {
			t.Errorf("epoch %q, known %v", l.epoch, l.known)
		}
	}
}

// TestLimitText wants the text of each limit that the ledger counts to be read as the limit.
func TestLimitText(t *testing.T) {
	t.Parallel()
	l := opened(t, newMemory())
	for _, limit := range []weir.Limit{
		{Algorithm: weir.FixedWindow, Count: 999_999_999_999_999, Period: 24 * time.Hour},
		{Algorithm: weir.FixedWindow, Count: 5, Period: 36*time.Hour + time.Millisecond, Block: time.Minute},
		{Algorithm: weir.FixedWindow, Count: 5, Period: 168 * time.Hour, TimeZone: "Europe/Paris"},
		{Algorithm: weir.FixedWindow, Count: 5, Period: 720 * time.Hour, TimeZone: "America/New_York", AnchorDay: 31},
		{Algorithm: weir.FixedWindow, Count: 5, Period: 8760 * time.Hour, TimeZone: "UTC", Name: "n", Meter: "usd"},
	} {
		compiled, err := limit.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if _, counts := WindowOf(compiled, time.Now()); !counts {
			t.Errorf("%s is not counted", limit)
		}
		if got := l.limitOf(compiled.String()); got == nil || !got.Alike(compiled) {
			t.Errorf("%s is read as %v", limit, got)
		}
	}
	if got := l.limitOf("a lot"); got != nil {
		t.Errorf("%v", got)
	}
}
