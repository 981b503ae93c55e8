package app

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/admission"
)

// pairOf is a connection that sets deadlines seldom, the other end of it, and how
// often a deadline was really set.
func pairOf(t testing.TB) (conn *lazyConn, far net.Conn, moves *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	far, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn, moves = newLazyConn(&counted{Conn: accepted, Seat: admission.NewRoom(1).Enter(nil)}), new(atomic.Int64)
	for _, d := range []*lazyDeadline{&conn.read, &conn.write} {
		arm := d.arm
		d.arm = func(t time.Time) error {
			moves.Add(1)
			return arm(t)
		}
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = far.Close()
	})
	return conn, far, moves
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// TestDeadlinesThatMoveAway cost nothing but the first one, and none is missed.
func TestDeadlinesThatMoveAway(t *testing.T) {
	t.Parallel()
	conn, far, moves := pairOf(t)
	begun := time.Now()
	for _, end := range []time.Time{in(50 * time.Millisecond), in(100 * time.Millisecond), in(time.Hour), {}, in(200 * time.Millisecond)} {
		if err := conn.SetReadDeadline(end); err != nil {
			t.Fatal(err)
		}
	}
	if n := moves.Load(); n != 1 {
		t.Errorf("moved %d times, want once", n)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || n != 0 || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("%d, %v after %v; want the last deadline", n, err, time.Since(begun))
	}
	// What has passed is over for all reads, until it is moved.
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("behind the deadline: %v", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("without a deadline: %d, %v", n, err)
	}
}

// TestExtension: a process that is late reads what came in time, once.
func TestExtension(t *testing.T) {
	t.Parallel()
	conn, far, _ := pairOf(t)
	if _, err := far.Write([]byte("in time")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(in(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-time.After(20 * time.Millisecond) // as if this process had been stopped
	text := make([]byte, 100)
	if n, err := conn.Read(text); string(text[:n]) != "in time" || err != nil {
		t.Errorf("%q, %v", text[:n], err)
	}
	<-time.After(2 * extension)
	if _, err := far.Write([]byte("too late")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(text); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v after the extension", text[:n], err)
	}
}

// TestNearerDeadline ends a read that has begun.
func TestNearerDeadline(t *testing.T) {
	t.Parallel()
	for name, near := range map[string]time.Time{"soon": in(20 * time.Millisecond), "at once": time.Unix(1, 0)} {
		conn, far, _ := pairOf(t)
		if err := conn.SetReadDeadline(in(time.Hour)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		if err := conn.SetReadDeadline(near); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		// As net/http does it once the interrupted read is back.
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%s, next: %d, %v", name, n, err)
		}
	}
}

// request sets the deadlines that net/http sets for one.
func request(t testing.TB, conn net.Conn) {
	now := time.Now()
	if err := errors.Join(
		conn.SetReadDeadline(now.Add(readHeaderTimeout)),
		conn.SetReadDeadline(now.Add(readTimeout)),
		conn.SetWriteDeadline(now.Add(writeTimeout)),
		conn.SetReadDeadline(time.Unix(1, 0)),
		conn.SetReadDeadline(time.Time{}),
		conn.SetReadDeadline(now.Add(idleTimeout)),
		conn.SetReadDeadline(time.Time{}),
	); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDeadlines compares it with a connection that sets each of them.
func BenchmarkDeadlines(b *testing.B) {
	conn, _, _ := pairOf(b)
	for name, c := range map[string]net.Conn{"seldom": conn, "each": conn.counted} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				request(b, c)
			}
		})
	}
}

// TestRequestsMoveTwoDeadlines goes through two requests.
func TestRequestsMoveTwoDeadlines(t *testing.T) {
	t.Parallel()
	conn, _, moves := pairOf(t)
	request(t, conn)
	first := moves.Load()
	request(t, conn)
	if n := moves.Load() - first; first != 4 || n != 2 {
		t.Errorf("moved %d and %d times, want 4 and 2: the interruption and its end", first, n)
	}
}

// TestWriteGoesOn: what is interrupted too early goes on where it was.
func TestWriteGoesOn(t *testing.T) {
	t.Parallel()
	conn, far, _ := pairOf(t)
	if err := errors.Join(conn.SetDeadline(in(50*time.Millisecond)), conn.SetDeadline(in(time.Hour))); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("0123456789"), 1<<20) // more than any buffer takes
	wrote := make(chan error, 1)
	go func() {
		n, err := conn.Write(text)
		if err == nil && n != len(text) {
			err = io.ErrShortWrite
		}
		wrote <- errors.Join(err, conn.Close())
	}()
	<-time.After(100 * time.Millisecond) // the early deadline comes while the write waits
	got, err := io.ReadAll(far)
	if err := errors.Join(err, <-wrote); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
	}
}

// TestUnread: bytes that are read once more come first, and the deadline of the request that they
// begin is earlier by the time that it has used. The next one's is not.
func TestUnread(t *testing.T) {
	t.Parallel()
	conn, _, _ := pairOf(t)
	conn.Unread([]byte("ab"), time.Hour-50*time.Millisecond)
	if err := conn.SetReadDeadline(in(time.Hour)); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	if n, err := conn.Read(p); n != 2 || err != nil || string(p[:n]) != "ab" {
		t.Errorf("read %q, %v", p[:n], err)
	}
	if _, err := conn.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first deadline: %v", err)
	}
	if _, err := conn.Write(p); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := conn.SetReadDeadline(in(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("the second deadline: %v after %v", err, time.Since(begun))
	}
}
