package resp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/held"
)

// dial returns a client with a connection of the system, whose first command was answered.
// The server holds its reads from then on.
func dial(t *testing.T, s *Server) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", listen(t, s, plain))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if got := exchange(t, conn, "PING\r\n", len("+PONG\r\n")); got != "+PONG\r\n" {
		t.Fatalf("answered %q", got)
	}
	return conn.(*net.TCPConn)
}

// exchange sends input and returns as many bytes of its answer.
func exchange(t *testing.T, conn net.Conn, input string, n int) string {
	t.Helper()
	if _, err := io.WriteString(conn, input); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// halting is a Taker that decides when it is told to.
type halting struct{ begun, resume chan struct{} }

func (h halting) Take(_ context.Context, acts []*weir.Act) {
	h.begun <- struct{}{}
	<-h.resume
	for _, act := range acts {
		act.Err = weir.ErrNotApplied
	}
}

// TestEndThatArrivesWithACommand: the system tells of both at once.
func TestEndThatArrivesWithACommand(t *testing.T) {
	t.Parallel()
	h := halting{make(chan struct{}), make(chan struct{})}
	conn := dial(t, newServer(t, Options{Taker: h}))
	if _, err := io.WriteString(conn, "CL.THROTTLE a 1 1 1\r\n"); err != nil {
		t.Fatal(err)
	}
	<-h.begun
	_, err := io.WriteString(conn, "PING\r\n")
	if err := errors.Join(err, conn.CloseWrite(), conn.SetReadDeadline(time.Now().Add(idleTimeout/2))); err != nil {
		t.Fatal(err)
	}
	close(h.resume)
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "\r\n+PONG\r\n") {
		t.Errorf("answered %q, %v: the server missed the end", answer, err)
	}
}

// TestCommandsAfterAPause come later than the server looks for an end.
func TestCommandsAfterAPause(t *testing.T) {
	t.Parallel()
	conn := dial(t, newServer(t, Options{}))
	for range 3 {
		time.Sleep(held.Probe * 5 / 4) // the time that is tested
		if got := exchange(t, conn, "PING\r\n", len("+PONG\r\n")); got != "+PONG\r\n" {
			t.Fatalf("answered %q", got)
		}
	}
}

// TestCommandsInParts come byte by byte, or longer than a read.
func TestCommandsInParts(t *testing.T) {
	t.Parallel()
	conn := dial(t, newServer(t, Options{}))
	for _, b := range []byte("PING\r\n") {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", maxArg)
	many := strings.Repeat(bulks("ECHO", long), 20)
	want := "+PONG\r\n" + strings.Repeat("$4096\r\n"+long+"\r\n", 20)
	if got := exchange(t, conn, many, len(want)); got != want {
		t.Errorf("got %d bytes, %.20q…", len(got), got)
	}
}

// TestRepliesWaitForTheClient: the system takes only a part of them at once.
func TestRepliesWaitForTheClient(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	address := listen(t, s, func(c net.Conn) net.Conn {
		if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
			t.Error(err)
		}
		return c
	})
	client, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	const sent = 50_000
	go func() { _, _ = io.WriteString(client, strings.Repeat("PING\r\n", sent)+"QUIT\r\n") }()
	answer, err := io.ReadAll(client)
	if want := strings.Repeat("+PONG\r\n", sent) + "+OK\r\n"; err != nil || !bytes.Equal(answer, []byte(want)) {
		t.Errorf("%d bytes of answers, want %d; %v", len(answer), len(want), err)
	}
}

// TestRoomIsMadeAtOnce: a client whose wrong password is answered late makes room for the next
// one before that.
func TestRoomIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	failed := make(chan struct{}, 1)
	s := newServer(t, Options{Callers: protected(t, func() { failed <- struct{}{} }), MaxConnections: 1})
	s.authDelay = time.Hour
	address := listen(t, s, plain)
	guess, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer guess.Close()
	if _, err := io.WriteString(guess, "AUTH wrong\r\n"); err != nil {
		t.Fatal(err)
	}
	<-failed
	next, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := next.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, next, "AUTH secret\r\n", len("+OK\r\n")); got != "+OK\r\n" {
		t.Errorf("the next client is answered %q", got)
	}
	s.cut() // ends the delay
}
