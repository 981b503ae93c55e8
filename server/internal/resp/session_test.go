package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/callers"
)

// nopConn takes everything and has nothing to say.
type nopConn struct{ net.Conn }

func (nopConn) Write(p []byte) (int, error)        { return len(p), nil }
func (nopConn) SetWriteDeadline(_ time.Time) error { return nil }
func (nopConn) RemoteAddr() net.Addr               { return new(net.TCPAddr) }

// halfConn notes that no more is written.
type halfConn struct {
	net.Conn
	closed chan bool
}

func (c halfConn) CloseWrite() error {
	c.closed <- true
	return errors.ErrUnsupported
}

// maxPart is the length of a long argument, many of which make a request too large.
const maxPart = 4 << 10

func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ send, want string }{
		"a million arguments": {lines("*1000000"), "invalid multibulk length"},
		"one too many":        {lines("*65"), "invalid multibulk length"},
		"fewer than none":     {lines("*-1"), "invalid multibulk length"},
		"no count":            {lines("*"), "invalid multibulk length"},
		"count with a sign":   {lines("*+1"), "invalid multibulk length"},
		"count without end":   {"*" + strings.Repeat("0", maxLength), "invalid multibulk length"},
		"count, bare newline": {"*1\n$4\nPING\n", "invalid multibulk length"},
		"a gigabyte":          {lines("*1 $999999999"), "invalid bulk length"},
		"an argument's end":   {lines(fmt.Sprintf("*1 $%d", maxRequest-len("*1..$67572..")-1)), "too big request"},
		"many long arguments": {"*64\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", maxPart, strings.Repeat("x", maxPart)), 17), "too big request"},
		"no room for another": {"*2\r\n" + fmt.Sprintf("$67569\r\n%s\r\n", strings.Repeat("x", 67569)) + "$1", "too big request"},
		"null":                {lines("*1 $-1"), "invalid bulk length"},
		"nested":              {lines("*1 *1 *1"), `expected '$', got '*'`},
		"binary":              {"*1\r\n\x00", `expected '$', got '\x00'`},
		"longer than it said": {lines("*1 $4 PINGS"), "a bulk string goes on behind its length"},
		"endless line":        {strings.Repeat("x", maxLine), "too big inline request"},
		"many words":          {strings.Repeat("x ", maxArgs+1) + "\r\n", "too many arguments in an inline request"},
		"quotes":              {"ECHO \"a b\"\r\n", "quotes in an inline request"},
		"HTTP":                {"POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE a 1 1 1\r\n", "this is no HTTP server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, newServer(t, Options{}))
			if got, want := tell(t, conn, "PING\r\n"+test.send), "+PONG\r\n-ERR Protocol error: "+test.want+"\r\n"; got != want {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
}

// TestAnnouncementsCostNothing does not run in parallel: it measures the memory
// of the whole process.
func TestAnnouncementsCostNothing(t *testing.T) {
	s := newServer(t, Options{})
	for _, send := range []string{
		lines("*1000000"), lines("*1 $999999999"), lines("*16 $4096"), lines("*64 $60000"), strings.Repeat("*", 5000),
		strings.Repeat("*16\r\n", 1000), "*1\r\n$" + strings.Repeat("9", 5000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := newSession(s, nopConn{})
		for rest := []byte(send); len(rest) > 0 && !c.ending; {
			c.room()
			n := min(len(rest), cap(c.in)-len(c.in))
			c.in, rest = append(c.in, rest[:n]...), rest[n:]
			c.answer()
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%.20q… made the server allocate %d bytes", send, n)
		}
	}
}

// TestLongRequestsGiveMemoryBack sends the longest request there is, byte for
// byte, and looks at the buffer afterwards.
func TestLongRequestsGiveMemoryBack(t *testing.T) {
	t.Parallel()
	long := "*17\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", maxPart, strings.Repeat("x", maxPart)), 16)
	rest := maxRequest - len(long) - len("$1790\r\n\r\n")
	long += fmt.Sprintf("$%d\r\n%s\r\n", rest, strings.Repeat("x", rest))
	c := newSession(newServer(t, Options{}), nopConn{})
	for i := range len(long) {
		c.room()
		c.in = append(c.in, long[i])
		if i == len(long)-1 && cap(c.in) != maxRequest {
			t.Errorf("%d bytes of buffer for %d of input, want %d", cap(c.in), len(c.in), maxRequest)
		}
		c.answer()
	}
	if got := string(c.out); len(long) != maxRequest || !strings.HasPrefix(got, "-ERR unknown command") || c.ending {
		t.Errorf("answered %q", got)
	}
	if c.room(); cap(c.in) != inputBytes {
		t.Errorf("%d bytes of buffer afterwards, want %d", cap(c.in), inputBytes)
	}
}

// TestAMillionPings never holds more than a few answers, and answers all.
func TestAMillionPings(t *testing.T) {
	t.Parallel()
	const sent = 1_000_000
	conn := connect(t, newServer(t, Options{}))
	go func() {
		// More than one read takes, so that the bound on bytes is not the first.
		chunk := strings.Repeat("PING\r\n", 10_000)
		for range sent / 10_000 {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return
			}
		}
		_, _ = io.WriteString(conn, "QUIT\r\n")
	}()
	total, longest := 0, 0
	for answer := make([]byte, 1<<20); ; {
		n, err := conn.Read(answer)
		total, longest = total+n, max(longest, n)
		if err != nil {
			break
		}
	}
	if want := sent*len("+PONG\r\n") + len("+OK\r\n"); total != want || longest > maxPipeline*len("+PONG\r\n") {
		t.Errorf("%d bytes of answers, at most %d at once; want %d, %d", total, longest, want, maxPipeline*len("+PONG\r\n"))
	}
}

func TestLargeAnswersAreWrittenInParts(t *testing.T) {
	t.Parallel()
	conn := connect(t, newServer(t, Options{}))
	go func() {
		_, _ = io.WriteString(conn, strings.Repeat("INFO\r\n", 1000)+"QUIT\r\n")
	}()
	for answer := make([]byte, 1<<20); ; {
		n, err := conn.Read(answer)
		if n > maxUnsent+maxPart {
			t.Errorf("%d bytes in one write", n)
		}
		if err != nil {
			break
		}
	}
}

// TestLastReplyArrives sends more than the server reads before it hangs up.
func TestLastReplyArrives(t *testing.T) {
	t.Parallel()
	for send, want := range map[string]string{
		"QUIT\r\n": "+OK\r\n",
		"*x\r\n":   "-ERR Protocol error: invalid multibulk length\r\n",
	} {
		conn, err := net.Dial("tcp", listen(t, newServer(t, Options{}), plain))
		if err != nil {
			t.Fatal(err)
		}
		if got := tell(t, conn, send+strings.Repeat("x", lingerBytes/2)); got != want {
			t.Errorf("%q is answered %q", send, got)
		}
		conn.Close()
	}
}

func TestAuth(t *testing.T) {
	t.Parallel()
	const noauth = "-NOAUTH Authentication required.\r\n"
	for name, test := range map[string]struct{ send, want string }{
		"nothing works before":     {"PING\r\nCL.THROTTLE a 1 1 1\r\nCL.THROTTLE\r\nGET a\r\nINFO\r\n", strings.Repeat(noauth, 5)},
		"password":                 {"AUTH secret\r\nPING\r\n", "+OK\r\n+PONG\r\n"},
		"user and password":        {"AUTH default secret\r\nPING\r\n", "+OK\r\n+PONG\r\n"},
		"wrong password":           {"AUTH secre\r\nAUTH secrets\r\nAUTH SECRET\r\nPING\r\n", strings.Repeat("-"+errPassword+"\r\n", 3) + noauth},
		"wrong user":               {"AUTH root secret\r\nPING\r\n", "-" + errPassword + "\r\n" + noauth},
		"empty password":           {lines("*2 $4 AUTH $0") + "\r\n", "-" + errPassword + "\r\n"},
		"too much":                 {"AUTH a b c\r\nAUTH\r\n", strings.Repeat("-ERR wrong number of arguments for \"AUTH\"\r\n", 2)},
		"a bad try changes naught": {"AUTH secret\r\nAUTH wrong\r\nPING\r\n", "+OK\r\n-" + errPassword + "\r\n+PONG\r\n"},
		"hello alone":              {"HELLO 3\r\nHELLO\r\n", strings.Repeat("-"+errHello+"\r\n", 2)},
		"hello, wrong":             {"HELLO 3 AUTH default x\r\nPING\r\n", "-" + errPassword + "\r\n" + noauth},
		"hello, then bad option":   {"HELLO 3 AUTH default secret SETNAME\r\nPING\r\n", "-ERR Syntax error in HELLO option \"SETNAME\"\r\n" + noauth},
		"reset forgets":            {"AUTH secret\r\nRESET\r\nPING\r\n", "+OK\r\n+RESET\r\n" + noauth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := converse(t, newServer(t, Options{Callers: protected(t, nil)}), test.send); got != test.want {
				t.Errorf("\n got %q\nwant %q", got, test.want)
			}
		})
	}
	got := converse(t, newServer(t, Options{Callers: protected(t, nil)}), "HELLO 3 AUTH default secret SETNAME me\r\nCLIENT GETNAME\r\n")
	if !strings.HasPrefix(got, "%7\r\n") || !strings.HasSuffix(got, lines("$2 me")) {
		t.Errorf("hello: %q", got)
	}
}

// TestGuessingCosts: a connection has a few guesses, each of which takes time, however
// many arrive at once and with which command; other connections do not wait.
func TestGuessingCosts(t *testing.T) {
	t.Parallel()
	for name, guess := range map[string]string{"auth": "AUTH wrong\r\n", "hello": "HELLO 3 AUTH default wrong\r\n", "a user": "AUTH root secret\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, Options{Callers: protected(t, nil)})
				begun := time.Now()
				guessing, other := connect(t, s), connect(t, s)
				var clients sync.WaitGroup
				defer clients.Wait()
				clients.Go(func() {
					if got := tell(t, other, "AUTH secret\r\nQUIT\r\n"); got != "+OK\r\n+OK\r\n" || time.Since(begun) != 0 {
						t.Errorf("another client: %q after %s", got, time.Since(begun))
					}
				})
				got := tell(t, guessing, strings.Repeat(guess, 100)+"AUTH secret\r\n")
				if want := strings.Repeat("-"+errPassword+"\r\n", callers.MaxFailures); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if took, want := time.Since(begun), callers.MaxFailures*authDelay; took < want {
					t.Errorf("%d guesses took %s, want %s", callers.MaxFailures, took, want)
				}
			})
		})
	}
}

// TestGuessesInARow: a password that is right is no guess.
func TestGuessesInARow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		few := strings.Repeat("AUTH wrong\r\n", callers.MaxFailures-1) + "AUTH secret\r\n"
		if got := converse(t, newServer(t, Options{Callers: protected(t, nil)}), few+few); strings.Count(got, "+OK") != 2 {
			t.Errorf("got %q", got)
		}
	})
}

func TestIdleClientsAreHungUpOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		protected      bool
		first, trickle string
		want           time.Duration
	}{
		"silence":                   {false, "", "", idleTimeout},
		"silence after a command":   {false, "PING\r\n", "", idleTimeout},
		"bytes without end":         {false, "PING\r\n", "x", idleTimeout},
		"lines without a command":   {false, "PING\r\n", "\r\n", idleTimeout},
		"silence before AUTH":       {true, "", "", authTimeout},
		"silence after a wrong one": {true, "AUTH wrong\r\n", "", authTimeout},
		"silence after AUTH":        {true, "AUTH secret\r\n", "", idleTimeout},
		"pings before AUTH":         {true, "", "PING\r\n", authTimeout},
		"resets before AUTH":        {true, "", "RESET\r\n", authTimeout},
		"reset after AUTH":          {true, "AUTH secret\r\nRESET\r\n", "PING\r\n", authTimeout},
		"commands, then silence":    {false, strings.Repeat("PING\r\n", 3), "", idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := Options{}
				if test.protected {
					o.Callers = protected(t, nil)
				}
				conn := connect(t, newServer(t, o))
				begun := time.Now()
				var client sync.WaitGroup
				defer client.Wait()
				client.Go(func() {
					_, err := io.WriteString(conn, test.first)
					for test.trickle != "" && err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(conn, test.trickle)
					}
				})
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != test.want {
					t.Errorf("hung up after %s, want %s", took, test.want)
				}
			})
		})
	}
}

// TestCommandsGainTime: each command gains a client the idle time, however long ago the first was.
func TestCommandsGainTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, newServer(t, Options{}))
		begun, reply := time.Now(), make([]byte, len("+PONG\r\n"))
		for range 5 {
			time.Sleep(idleTimeout - time.Second)
			if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, reply); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Error(err)
		}
		if took, want := time.Since(begun), 6*idleTimeout-5*time.Second; took != want {
			t.Errorf("hung up after %s, want %s", took, want)
		}
	})
}

func TestWhoDoesNotReadIsHungUpOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		deaf, other := connect(t, s), connect(t, s)
		if _, err := io.WriteString(deaf, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := tell(t, other, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
			t.Errorf("another client is answered %q", got)
		}
		time.Sleep(writeTimeout + writeSlack + time.Millisecond)
		synctest.Wait()
		if n := s.Clients(); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
}

func TestDecisionsHaveADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{Taker: waiting{}, Timeout: time.Minute})
		begun := time.Now()
		want := strings.Repeat("-ERR no decision: outcome unknown, the charge may have been made\r\n", 2)
		if got := converse(t, s, strings.Repeat("CL.THROTTLE a 1 1 1\r\n", 2)); got != want {
			t.Errorf("answered %q", got)
		}
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{MaxConnections: 2})
	first, second := connect(t, s), connect(t, s)
	for _, conn := range []net.Conn{first, second} {
		reply := make([]byte, len("+PONG\r\n"))
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatal(err)
		}
	}
	extra, err := net.Dial("tcp", listen(t, s, plain))
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	if got := tell(t, extra, ""); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("one too many is told %q", got)
	}
	if got := tell(t, first, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("an old one is answered %q", got)
	}
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		s := newServer(t, Options{Taker: waiting{begun}, Timeout: time.Second})
		connect(t, s) // idle
		client, server := net.Pipe()
		busy := halfConn{server, make(chan bool, 1)}
		s.accept(busy)
		answered := make(chan string)
		go func() { answered <- tell(t, client, "CL.THROTTLE a 1 1 1\r\n") }()
		<-begun
		stopped := make(chan error)
		go func() { stopped <- s.Shutdown(context.Background()) }()
		if got := <-answered; !strings.HasPrefix(got, "-ERR no decision") {
			t.Errorf("answered %q", got)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if len(busy.closed) != 1 {
			t.Error("the answer was not waited for")
		}
		if got := tell(t, connect(t, s), ""); got != "" {
			t.Errorf("a late client is told %q", got)
		}
	})
}

func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		s := newServer(t, Options{Taker: waiting{begun}, Timeout: time.Hour})
		busy := connect(t, s)
		go func() { _, _ = io.WriteString(busy, "CL.THROTTLE a 1 1 1\r\n") }()
		<-begun
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		before := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want to be told that clients were cut off", err)
		}
		if took := time.Since(before); took != time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s := newServer(t, Options{Taker: answering{err: weir.ErrNotApplied}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	converse(t, s, "CL.THROTTLE a 1 1 1\r\n")
	if want := `msg="the store reached no decision" error="not applied"`; strings.Count(logged.String(), want) != 1 {
		t.Errorf("logged: %s", &logged)
	}
}

// shortOf is a listener that has no room for a while, and is lost then.
type shortOf struct {
	errs  []error
	count int
}

func (l *shortOf) Accept() (net.Conn, error) {
	l.count++
	return nil, l.errs[l.count-1]
}
func (*shortOf) Close() error   { return nil }
func (*shortOf) Addr() net.Addr { return nil }

func TestServeOutlastsExhaustion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		lost := errors.New("lost")
		l := &shortOf{errs: []error{full, full, full, lost}}
		begun := time.Now()
		if err := s.Serve(l); !errors.Is(err, lost) {
			t.Errorf("got %v", err)
		}
		if took, want := time.Since(begun), 7*firstPause; took != want || l.count != 4 {
			t.Errorf("%d tries in %s, want 4 in %s", l.count, took, want)
		}
	})
}
