package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// mostGrowth is what an attack may make the process keep: 64 MiB of garbage are not
	// collected for, and an attack may take as much.
	mostGrowth = 128 << 20
	// patience is how long anything may take that is to happen at all.
	patience = 30 * time.Second
)

// A siege is a server under attack, and a client of it that means no harm.
type siege struct {
	*weir
	t      *testing.T
	client *http.Client
}

// besiege starts a server in memory whose limits are testdata/hostile.yaml's.
func besiege(t *testing.T, more ...string) *siege {
	t.Helper()
	t.Parallel()
	return &siege{t: t, client: newClient(t), weir: serve(t, "testdata/hostile.yaml", "memory", more...)}
}

// during runs an attack. Meanwhile the other client has to be answered as ever,
// and the process must not grow by more than a bound.
func (s *siege) during(attack func()) {
	s.t.Helper()
	for range 100 { // what an ordinary client makes the process keep
		s.bystander()
	}
	before := s.memory()
	ended := make(chan struct{})
	var bystanding sync.WaitGroup
	bystanding.Go(func() {
		for {
			s.bystander()
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	attack()
	close(ended)
	bystanding.Wait()
	after := s.memory()
	s.t.Logf("resident before %d MiB, most %d MiB", before>>20, after>>20)
	if after-before > mostGrowth {
		s.t.Errorf("the process grew from %d to %d MiB", before>>20, after>>20)
	}
	select {
	case <-s.Exited:
		s.t.Error("the process ended")
	default:
	}
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

// memory is the most that the process has had in memory at once; 0 where the
// system does not say.
func (s *siege) memory() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return kib << 10
}

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
