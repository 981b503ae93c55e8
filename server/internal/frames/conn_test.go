package frames

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
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
	c := newConn(s, &pipe{})
	c.cut()
	h := head{w.Len() - headLength, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1}
	if err := c.process(h, w.Bytes()[headLength:]); err != nil || c.slots != 0 {
		t.Errorf("%v, %d slots are taken", err, c.slots)
	}
}

// TestRest has a connection fall idle between the bytes of its frames: none is lost.
func TestRest(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil)
	https.Close()
	for name, certificates := range map[string][]tls.Certificate{"plain": nil, "TLS": https.TLS.Certificates} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Options
			if certificates != nil {
				o.TLS = &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
			}
			s, nc := serveOne(t, o)
			cut := &halved{Conn: nc}
			nc = cut
			if certificates != nil {
				nc = tls.Client(cut, &tls.Config{RootCAs: https.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
			}
			f := http2.NewFramer(nc, nc)
			if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			if err := f.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			ping(t, f, 0)
			c := s.connections()[0]
			calms := func(shrink bool) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				if shrink {
					c.shrink(time.Hour)
				}
				return c.calm
			}
			cut.between = func() {
				for range 2 {
					// A part of a frame ends the rest; a part of a record need not.
					for calm := calms(true); calm && o.TLS == nil && 0 < cut.at && cut.at < headLength+8; calm = calms(false) {
						runtime.Gosched()
					}
				}
			}
			for i := range byte(2 * (headLength + 8)) {
				cut.at = int(i)
				ping(t, f, i)
			}
		})
	}
}

// TestLateProcess has a process get no processor for longer than messages and handshakes may
// take. Clients that had sent theirs in time are served. Those that go on sending nothing are
// not.
func TestLateProcess(t *testing.T) {
	t.Parallel()
	limited := make(chan Reason, 10)
	s, nc := serveOne(t, Options{
		Methods:          map[string]Handler{fuzzed: func(c *Call) { c.Reply(nil) }},
		HandshakeTimeout: 50 * time.Second, MessageTimeout: 50 * time.Second, WriteTimeout: time.Hour, Limited: func(why Reason) { limited <- why },
	})
	f := http2.NewFramer(nc, nc)
	write := func(b []byte) {
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte(http2.ClientPreface[:10]))
	for len(s.connections()) == 0 {
		runtime.Gosched()
	}
	s.tick(time.Hour)
	write([]byte(http2.ClientPreface[10:]))
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		id := uint32(1)
		if late {
			id = 3
		}
		w := newScript()
		w.head(id, false, usual(fuzzed)...)
		write(w.Bytes())
		ping(t, f, byte(id)) // the header has been read
		s.tick(time.Hour)
		for i := 0; late && i < 100; i++ {
			s.tick(time.Second)
		}
		if late {
			if why := <-limited; why != ReasonSlow {
				t.Errorf("a message that never came: %v", why)
			}
			continue
		}
		if err := f.WriteData(id, true, prefixed(nil)); err != nil {
			t.Fatal(err)
		}
		ping(t, f, 100)
		for s.Stats().Calls == 0 && len(limited) == 0 {
			runtime.Gosched() // its handler answers beside the reader
		}
		if len(limited) > 0 {
			t.Errorf("a call while the process was late: %v", <-limited)
		}
	}
}

// serveOne starts a server and returns a connection to it.
func serveOne(t *testing.T, o Options) (*Server, net.Conn) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() {
		_ = nc.Close()
		_ = s.Stop(context.Background())
		<-done
	})
	return s, nc
}

// ping waits for the answer to a ping.
func ping(t *testing.T, f *http2.Framer, n byte) {
	t.Helper()
	if err := f.WritePing(false, [8]byte{n}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("ping %d: %v", n, err)
		}
		if answer, ok := frame.(*http2.PingFrame); ok && answer.Data[0] == n {
			return
		}
	}
}

// A halved connection writes in two parts.
type halved struct {
	net.Conn
	at      int    // bytes of the first part
	between func() // nil: nothing is done between them
}

func (h *halved) Write(p []byte) (int, error) {
	if h.between == nil {
		return h.Conn.Write(p)
	}
	n, err := h.Conn.Write(p[:min(h.at, len(p))])
	if err != nil {
		return n, err
	}
	h.between()
	m, err := h.Conn.Write(p[n:])
	return n + m, err
}
