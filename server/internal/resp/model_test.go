package resp

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rules"
)

// cell is redis-cell's arithmetic for one key, with the interval between two
// units as it is rather than cut to whole nanoseconds: times count in parts of a
// microsecond, as many as there are units in a period.
type cell struct {
	count, period int64 // units, seconds
	tat           int64
}

const micro = 1_000_000

func (c *cell) throttle(now, burst, quantity, keep int64) [5]int64 {
	now *= c.count
	interval := c.period * micro
	tolerance := interval * (burst + 1 - keep)
	tat := max(now, c.tat)
	next := tat + interval*quantity
	// A look is allowed, also where a cut of the burst has left the key in debt.
	if quantity > 0 && now < next-tolerance {
		retry := int64(-1)
		if quantity+keep <= burst+1 {
			retry = c.up(next - tolerance - now)
		}
		return [5]int64{1, burst + 1, max(0, (tolerance-(tat-now))/interval), retry, c.up(tat - now)}
	}
	if quantity > 0 {
		c.tat = next
	}
	return [5]int64{0, burst + 1, max(0, (tolerance-(next-now))/interval), -1, c.up(next - now)}
}

// up is a duration in seconds, rounded up.
func (c *cell) up(d int64) int64 {
	second := c.count * micro
	return (d + second - 1) / second
}

// TestAgainstRedisCell drives the server and the model with the same random
// histories. Rates stay what they are for a key: where they change, a store that
// counts units differs from one that remembers an instant.
func TestAgainstRedisCell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := storetest.NewClock()
		begin := clock.Micros()
		s := New(Options{Taker: memengine.New(memengine.Options{Now: clock.Now}), Rules: rules.Demo})
		cells := make([]cell, 3)
		for i := range cells {
			cells[i].count = rapid.Int64Range(1, 5000).Draw(t, "count")
			cells[i].period = rapid.Int64Range(1, 3600).Draw(t, "period")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, len(cells)-1).Draw(t, "key")
			c := &cells[key]
			unit := c.period * micro / c.count
			clock.Advance(time.Duration(rapid.Int64Range(0, 3*unit).Draw(t, "advance")) * time.Microsecond)
			burst := rapid.Int64Range(0, 20).Draw(t, "burst")
			quantity := rapid.Int64Range(0, burst+2).Draw(t, "quantity")
			keep := max(0, rapid.Int64Range(-burst, burst).Draw(t, "keep"))
			want := c.throttle(clock.Micros()-begin, burst, quantity, keep)
			args := fmt.Sprintf("%d %d %d %d %d", key, burst, c.count, c.period, quantity)
			if keep > 0 {
				args += fmt.Sprint(" KEEP ", keep)
			}
			if got := throttled(s, args); got != wired(want) {
				t.Fatalf("CL.THROTTLE %s:\n got %q\nwant %q", args, got, wired(want))
			}
		}
	})
}

// throttled is the answer to one CL.THROTTLE, without a connection.
func throttled(s *Server, args string) string {
	c := newSession(s, nil)
	c.in = append(c.in, "CL.THROTTLE "+args+"\r\n"...)
	c.answer()
	return string(c.out)
}

func wired(answer [5]int64) string {
	text := "*5\r\n"
	for _, n := range answer {
		text += fmt.Sprintf(":%d\r\n", n)
	}
	return text
}

// TestModel holds the model to what redis-cell's documentation shows.
func TestModel(t *testing.T) {
	t.Parallel()
	c := cell{count: 30, period: 60}
	for i, want := range [][5]int64{{0, 16, 15, -1, 2}, {0, 16, 14, -1, 4}} {
		if got := c.throttle(0, 15, 1, 0); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	for range 14 {
		c.throttle(0, 15, 1, 0)
	}
	if got, want := c.throttle(0, 15, 1, 0), ([5]int64{1, 16, 0, 2, 32}); got != want {
		t.Errorf("at the end: %v, want %v", got, want)
	}
}

func TestPipelineIsDecidedTogether(t *testing.T) {
	t.Parallel()
	var calls []int
	s := newServer(t, Options{Taker: answering{calls: &calls}})
	one := "CL.THROTTLE a 9 1 1\r\n"
	send := strings.Repeat(one, 3) + "PING\r\n" + strings.Repeat(one, 2) + "CL.THROTTLE a\r\n" + one
	want := ""
	for _, batch := range []int{3, 2, 1} {
		for i := range batch {
			want += wired([5]int64{0, 10, int64(i), -1, 0})
		}
		want += map[int]string{3: "+PONG\r\n", 2: "-" + usage + "\r\n"}[batch]
	}
	if got := converse(t, s, send); got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if got := fmt.Sprint(calls); got != "[3 2 1]" {
		t.Errorf("acts a call: %s, want [3 2 1]", got)
	}
}

func TestPipelineIsBounded(t *testing.T) {
	t.Parallel()
	var calls []int
	s := newServer(t, Options{Taker: answering{calls: &calls}})
	const sent = 1000
	got := converse(t, s, strings.Repeat("CL.THROTTLE a 9 1 1\r\n", sent))
	if n := strings.Count(got, "*5\r\n"); n != sent {
		t.Errorf("%d answers, want %d", n, sent)
	}
	total := 0
	for _, n := range calls {
		total += n
		if n > maxBatch {
			t.Errorf("%d acts in one call, at most %d", n, maxBatch)
		}
	}
	if total != sent || len(calls) > sent/maxBatch+sent*20/inputBytes+2 {
		t.Errorf("%d acts in %d calls", total, len(calls))
	}
}

// TestAnswersTravelTogether counts the writes behind the answers to one read.
func TestAnswersTravelTogether(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	conn := connect(t, s)
	sent := "PING\r\nCL.THROTTLE a 1 1 1\r\nCL.THROTTLE a 1 1 1\r\nECHO x\r\n"
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	// A pipe hands over one write a read.
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if want := lines("+PONG *5 :0 :2 :1 :-1 :1 *5 :0 :2 :0 :-1 :2 $1 x"); err != nil || string(answer[:n]) != want {
		t.Errorf("first write: %v\n got %q\nwant %q", err, answer[:n], want)
	}
}
