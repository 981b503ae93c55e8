package frames_test

import (
	"testing"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/server/internal/frames"
)

// TestDirect has handlers called by the goroutine that reads: while one waits, further calls
// are answered and the connection goes on, however often that happens.
func TestDirect(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{Direct: true}).wire(t)
	id := uint32(1)
	for range 50 {
		waiting := id
		w.check(w.call(waiting, wait, 1))
		for range 5 {
			id += 2
			w.check(w.call(id, echo, 10))
			if status := w.answered(id); status != "0" {
				t.Fatalf("status %s", status)
			}
		}
		w.quietBut()
		w.check(w.WriteRSTStream(waiting, http2.ErrCodeCancel))
		id += 2
	}
	// Those in one packet are answered in turn, whatever they are.
	for _, method := range []string{echo, slow, crash, large, silent, reject, echo} {
		w.check(w.call(id, method, 10))
		id += 2
	}
	for range 7 {
		for f := wanted[*http2.HeadersFrame](w); !f.StreamEnded(); f = wanted[*http2.HeadersFrame](w) {
			w.read(f.HeaderBlockFragment())
		}
	}
}

// TestDirectAttacks cuts connections off whose handlers wait.
func TestDirectAttacks(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{Direct: true})
	for range 20 {
		w := p.wire(t)
		for id := uint32(1); id < 100; id += 2 {
			w.check(w.call(id, wait, 1))
		}
		w.check(w.WriteWindowUpdate(0, 1<<31-1))
		if code, said := w.end(); !said || code != http2.ErrCodeFlowControl {
			t.Errorf("code %v", code)
		}
		_ = w.nc.Close()
	}
	eventually(t, func() bool { return p.Stats().Connections == 0 })
}
