package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is how long anything may take that is to happen at all.
const patience = 30 * time.Second

// A siege is a server under attack, and a client of it that means no harm.
type siege struct {
	*weir
	t      *testing.T
	client *http.Client
}

// bystander asks a question that has nothing to do with the attack.
func (s *siege) bystander() {
	got, err := s.client.Get(s.url() + "/v1/auth?domain=hostile&free=1")
	if err != nil {
		s.t.Errorf("another client: %v", err)
		return
	}
	got.Body.Close()
	if got.StatusCode != http.StatusNoContent {
		s.t.Errorf("another client got %d", got.StatusCode)
	}
}

// memory is the most that the process has had in memory at once.
func (s *siege) memory() int64 { return int64(memoryOf(s.t, s.Cmd.Process.Pid, "VmHWM:")) << 10 }

// uncharged demands that nothing was taken from the limit that the attacks aim at:
// all of it can be taken, once.
func (s *siege) uncharged() {
	s.t.Helper()
	const all = `{"domain":"hostile","descriptors":[{"entries":[{"key":"victim","value":"1"}]}],"cost":1000}`
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		got, err := s.client.Post(s.url()+"/v1/take", "application/json", strings.NewReader(all))
		if err != nil {
			s.t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != want {
			s.t.Errorf("taking all that the victim has: %d, want %d", got.StatusCode, want)
		}
	}
}

// connect opens a connection that the test ends.
func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// endless is text that never ends.
type endless []byte

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// hungUp reports whether the server ends a connection, and what it says before.
func hungUp(conn net.Conn) (string, bool) {
	var said bytes.Buffer
	_, err := io.Copy(&said, io.LimitReader(conn, 1<<20))
	var late interface{ Timeout() bool }
	if l, ok := err.(interface{ Timeout() bool }); ok {
		late = l
	}
	return said.String(), late == nil || !late.Timeout()
}
