//go:build unix

package testserver

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const increment = "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"

// TestProxy sends one request into every fault and looks at what the client gets
// and at what the server did.
func TestProxy(t *testing.T) {
	t.Parallel()
	for fault, want := range map[Fault]struct {
		name, reply string
		err         error
		ran         string
	}{
		Pass:   {"pass", ":1\r\n", os.ErrDeadlineExceeded, ":1"},
		Refuse: {"refuse", "", nil, ":0"},
		Drop:   {"drop", "", nil, ":1"},
		Reset:  {"reset", "", syscall.ECONNRESET, ":1"},
		Cut:    {"cut", ":1\r\n", nil, ":1"},
		Delay:  {"delay", "", os.ErrDeadlineExceeded, ":1"},
		Late:   {"late", "", os.ErrDeadlineExceeded, ":1"},
	} {
		t.Run(want.name, func(t *testing.T) {
			t.Parallel()
			server := StartRedis(t)
			p := StartProxy(t, server.Addr(), func([]byte) Fault { return fault })
			reply, err := exchange(t, p, increment)
			full := reply == want.reply
			if fault == Cut {
				full = reply != "" && reply != want.reply && strings.HasPrefix(want.reply, reply)
			}
			if !full || !errors.Is(err, want.err) || p.Done(fault) != 1 {
				t.Errorf("got %q, %v, %d times; want %q, %v", reply, err, p.Done(fault), want.reply, want.err)
			}
			p.Close()
			expect(t, server, "INCRBY n 0", want.ran)
		})
	}
}

// exchange sends a request and returns all that comes back within a while.
func exchange(t *testing.T, p *Proxy, request string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}

// TestProxyKeepsValuesApart pipelines values of every kind.
func TestProxyKeepsValuesApart(t *testing.T) {
	t.Parallel()
	values := []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(12\r\n",
		"$-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nb\n\r\n", "=5\r\ntxt:x\r\n", "!3\r\nERR\r\n",
		"*-1\r\n", "*0\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "~1\r\n+a\r\n", ">1\r\n+a\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n%0\r\n", "|1\r\n+ttl\r\n:1\r\n+value\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(values, "")))
	for _, want := range values {
		if got, err := readValue(r); string(got) != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	for _, broken := range []string{"", "*2\r\n+a\r\n", "$4\r\nab", "$x\r\nab\r\n"} {
		if got, err := readValue(bufio.NewReader(strings.NewReader(broken))); err == nil {
			t.Errorf("%q was read as %q", broken, got)
		}
	}
}
