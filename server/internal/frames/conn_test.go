package frames

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestCallAfterTheEnd reads a call that came before its connection was cut: its slot
// must not stay taken.
func TestCallAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Methods: map[string]Handler{fuzzed: func(*Call) {}}})
	if err != nil {
		t.Fatal(err)
	}
	w := newScript()
	w.head(1, false, usual(fuzzed)...)
	framer := http2.NewFramer(nil, bytes.NewReader(w.Bytes()))
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(s, &pipe{})
	c.cut()
	if err := c.receive(frame); err != nil || c.slots != 0 {
		t.Errorf("%v, %d slots are taken", err, c.slots)
	}
}
