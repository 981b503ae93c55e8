package frames_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/server/internal/frames"
)

// A gathering is Options.Gather of a server whose method Later waits until it is told to go on.
type gathering struct {
	sizes chan int
	open  chan struct{}
}

func (g *gathering) answer(calls []*frames.Call) {
	first, bounded := calls[0].Context().Deadline()
	for _, c := range calls {
		if end, _ := c.Context().Deadline(); bounded && !end.Truncate(time.Millisecond).Equal(first.Truncate(time.Millisecond)) {
			c.Fail(2, "another deadline")
			return
		}
	}
	calls[0].Yield()
	g.sizes <- len(calls)
	<-g.open
	for _, c := range calls {
		if bytes.Contains(c.Message(), []byte{7, 7}) {
			panic("a test")
		}
		c.Reply(append(c.Buffer(), c.Message()...))
	}
}

// serveGathered serves and connects. The server reads the connection through a large buffer.
func serveGathered(t *testing.T) (*gathering, *peer, *wire) {
	g := &gathering{make(chan int, 1000), make(chan struct{})}
	p := serve(t, frames.Options{Direct: true, Gather: g.answer})
	w := p.wire(t)
	w.check(w.call(1, echo, 4000))
	if status := w.answered(1); status != "0" {
		t.Fatalf("status %s", status)
	}
	return g, p, w
}

// packet has what a function sends leave in one write.
func (w *wire) packet(send func(w *wire)) {
	w.Helper()
	var all bytes.Buffer
	direct := w.Framer
	w.Framer = http2.NewFramer(&all, nil)
	send(w)
	w.Framer = direct
	w.must(w.nc.Write(all.Bytes()))
}

// TestGather has calls in one packet answered together, and others among them at once.
func TestGather(t *testing.T) {
	t.Parallel()
	g, _, w := serveGathered(t)
	for round := range uint32(3) {
		from := 1 + round*30
		w.packet(func(w *wire) {
			for i := from; i < from+30; i++ {
				method := later
				switch (i - 1) % 3 {
				case 1:
					method = echo
				case 2:
					method = crash
				}
				w.check(w.call(id(i), method, int(i)))
			}
		})
		if n := <-g.sizes; n != 10 {
			t.Errorf("%d calls were answered together, want 10", n)
		}
		got := map[uint32]string{}
		answer := func(n int) {
			for len(got) < n {
				f := wanted[*http2.HeadersFrame](w)
				if header := w.read(f.HeaderBlockFragment()); f.StreamEnded() {
					got[f.StreamID] = header["grpc-status"]
				}
			}
		}
		answer(20) // while the others wait
		for i, status := range got {
			if want := map[uint32]string{1: "0", 2: "13"}[(i-3)/2%3]; status != want {
				t.Errorf("stream %d: %s, want %q", i, status, want)
			}
		}
		g.open <- struct{}{}
		answer(30)
		for i := from; i < from+30; i += 3 {
			if got[id(i)] != "0" {
				t.Errorf("stream %d: %q", id(i), got[id(i)])
			}
		}
	}
}

// TestGatherDeadlines keeps calls with other deadlines apart: none waits for another's.
func TestGatherDeadlines(t *testing.T) {
	t.Parallel()
	g, _, w := serveGathered(t)
	w.packet(func(w *wire) {
		for i := uint32(1); i < 13; i++ {
			w.check(w.head(id(i), later, "grpc-timeout", []string{"10S", "20S", "30S"}[i%3]))
			w.check(w.WriteData(id(i), true, message(1)))
		}
	})
	for range 3 {
		if n := <-g.sizes; n != 4 {
			t.Errorf("%d calls were answered together, want 4", n)
		}
	}
	close(g.open)
	for range 12 {
		for f := wanted[*http2.HeadersFrame](w); ; f = wanted[*http2.HeadersFrame](w) {
			if header := w.read(f.HeaderBlockFragment()); f.StreamEnded() {
				if header["grpc-status"] != "0" {
					t.Errorf("%v", header)
				}
				break
			}
		}
	}
}

// TestGatherPanics has all calls of a group fail with it, and no others.
func TestGatherPanics(t *testing.T) {
	t.Parallel()
	g, _, w := serveGathered(t)
	close(g.open)
	for round := range uint32(3) {
		from := 1 + round*10
		w.packet(func(w *wire) {
			for i := from; i < from+10; i++ {
				w.check(w.head(id(i), later))
				body := message(3)
				if round == 1 && i == from+5 {
					copy(body[7:], []byte{7, 7, 7})
				}
				w.check(w.WriteData(id(i), true, body))
			}
		})
		if n := <-g.sizes; n != 10 {
			t.Errorf("%d together", n)
		}
		var statuses []string
		for len(statuses) < 10 {
			f := wanted[*http2.HeadersFrame](w)
			if header := w.read(f.HeaderBlockFragment()); f.StreamEnded() {
				statuses = append(statuses, header["grpc-status"])
			}
		}
		want := map[bool]string{true: "13", false: "0"}[round == 1]
		if slices.ContainsFunc(statuses, func(s string) bool { return s != want }) {
			t.Errorf("round %d: %s", round, strings.Join(statuses, " "))
		}
	}
}

// TestGatherLeft resets calls that wait with others, and cuts their connection.
func TestGatherLeft(t *testing.T) {
	t.Parallel()
	g, p, w := serveGathered(t)
	w.packet(func(w *wire) {
		for i := uint32(1); i < 11; i++ {
			w.check(w.call(id(i), later, 1))
		}
	})
	<-g.sizes
	for i := uint32(1); i < 6; i++ {
		w.check(w.WriteRSTStream(id(i), 8))
	}
	w.quietBut()
	_ = w.nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go close(g.open)
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}
