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

// TestCloseWaitsForNobody has a client of TLS read nothing and break a rule: nobody waits for
// it until the end of TLS is written.
func TestCloseWaitsForNobody(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil)
	https.Close()
	s, nc := serveOne(t, Options{
		WriteTimeout: time.Minute, Methods: map[string]Handler{fuzzed: func(c *Call) { c.Reply(make([]byte, 60_000)) }},
		TLS: &tls.Config{Certificates: https.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12},
	})
	nc = tls.Client(nc, &tls.Config{RootCAs: https.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
	f := http2.NewFramer(nc, nc)
	write := func(b []byte) {
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte(http2.ClientPreface))
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = f.WriteWindowUpdate(0, 1<<30)
	ping(t, f, 0)
	c := s.connections()[0]
	stuck := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.flushing && len(c.out) > 0
	}
	for id := uint32(1); !stuck(); id += 2 {
		w := newScript()
		w.head(id, false, usual(fuzzed)...)
		_ = w.WriteData(id, true, prefixed([]byte("a")))
		write(w.Bytes())
		time.Sleep(10 * time.Millisecond)
	}
	_ = f.WriteWindowUpdate(0, 1<<31-1)
	closing := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.phase == closing
	}
	for !closing() {
		time.Sleep(time.Millisecond)
	}
	longest := time.Duration(0)
	for begun := time.Now(); time.Since(begun) < 3*time.Second && len(s.connections()) > 0; time.Sleep(time.Millisecond) {
		now := time.Now()
		s.tick(time.Millisecond)
		longest = max(longest, time.Since(now))
	}
	// Closing TLS can take five seconds.
	if longest > 2*time.Second {
		t.Errorf("the server was kept waiting for %v", longest)
	}
}

// TestGoAwayNeverRises breaks a rule after the connection was left: what is said of the last
// stream stays true.
func TestGoAwayNeverRises(t *testing.T) {
	t.Parallel()
	until := make(chan struct{})
	s, nc := serveOne(t, Options{Methods: map[string]Handler{fuzzed: func(c *Call) {
		c.Yield()
		<-until
		c.Reply(nil)
	}}})
	defer close(until)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(nc, nc)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	call := func(id uint32) {
		w := newScript()
		w.head(id, false, usual(fuzzed)...)
		_ = w.WriteData(id, true, prefixed([]byte("a")))
		if _, err := nc.Write(w.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	ping(t, f, 0)
	call(1)
	ping(t, f, 1)
	s.connections()[0].drain("a test")
	for last, n := uint32(maxWindow), 0; n < 3; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.GoAwayFrame:
			if n++; frame.LastStreamID > last {
				t.Errorf("the last stream is %d, and was %d", frame.LastStreamID, last)
			}
			if last = frame.LastStreamID; n == 2 {
				call(3)
				_ = f.WriteWindowUpdate(0, 0)
			}
		}
	}
}

// TestReplyOfMessage has a handler reply with the message itself. Later calls must not get one
// memory for both their message and their reply.
func TestReplyOfMessage(t *testing.T) {
	t.Parallel()
	_, nc := serveOne(t, Options{Methods: map[string]Handler{fuzzed: func(c *Call) {
		if c.Header("copy") == "" {
			c.Reply(c.Message())
			return
		}
		c.Reply(append(append(c.Buffer(), "copy: "...), c.Message()...))
	}}})
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(nc, nc)
	_ = f.WriteSettings()
	for id := uint32(1); id < 100; id += 2 {
		w := newScript()
		fields, want := usual(fuzzed), "a message"
		if id%4 == 3 {
			fields, want = append(fields, "copy", "yes"), "copy: a message"
		}
		w.head(id, false, fields...)
		_ = w.WriteData(id, true, prefixed([]byte("a message")))
		if _, err := nc.Write(w.Bytes()); err != nil {
			t.Fatal(err)
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := frame.(*http2.DataFrame); ok {
				if got := string(data.Data()[prefixLength:]); got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
				break
			}
		}
	}
}
