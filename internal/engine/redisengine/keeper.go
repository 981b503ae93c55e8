package redisengine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

// keepFor is how long a late reply is waited for.
const keepFor = 10 * time.Second

// maxLateReply is the largest reply that is read late.
const maxLateReply = 1 << 20

// A keeper is a client's hook that keeps a connection open if its call ended before the reply
// came, and reads the reply later. A call can so wait on its caller's goroutine, which is
// faster than waking another one. It starts a goroutine for each late reply, which ends with
// the reply or after ten seconds.
type keeper struct{}

// keep has the late replies of a client read, and reports whether they are: those of a client
// of one server that keeps to the deadlines of contexts.
func keep(client redis.UniversalClient) bool {
	c, single := client.(*redis.Client)
	if !single || !c.Options().ContextTimeoutEnabled {
		return false
	}
	c.AddHook(keeper{})
	return true
}

// DialHook has connections kept, once however many stores share the client.
func (keeper) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		switch inner.(type) {
		case *keptConn, keptSocket:
			return inner, nil
		}
		c := &keptConn{Conn: inner}
		if socket, is := inner.(syscall.Conn); is {
			return keptSocket{c, socket}, nil
		}
		return c, nil
	}
}

// ProcessHook changes nothing.
func (keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A keptConn is a connection of a client.
type keptConn struct {
	net.Conn
	// waiting is set from a write to the first bytes of the reply.
	waiting atomic.Bool
	late    atomic.Pointer[lateReply]
}

// Write implements [net.Conn].
func (c *keptConn) Write(p []byte) (int, error) {
	c.waiting.Store(true)
	return c.Conn.Write(p)
}

// Read implements [net.Conn]. The error of a read that ends before the reply came is a
// [lateReply].
func (c *keptConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.waiting.Store(false)
	} else if c.waiting.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		late := &lateReply{}
		c.late.Store(late)
		return 0, late
	}
	return n, err
}

// Close implements [net.Conn]. A connection that waits for a reply is closed after it.
func (c *keptConn) Close() error {
	if late := c.late.Load(); late != nil {
		// It ends when the reply has come, or with the deadline.
		go late.read(c.Conn)
		return nil
	}
	return c.Conn.Close()
}

// A keptSocket is a keptConn over a socket, so that the client can check whether an idle
// connection is still good. A TLS connection is none: its check would always fail.
type keptSocket struct {
	*keptConn
	syscall.Conn
}

// NetConn returns the connection below, as that of crypto/tls does.
func (c *keptConn) NetConn() net.Conn { return c.Conn }

// A lateReply is the error of a call that ended before its reply came, and the reply
// once it has come.
type lateReply struct {
	mu      sync.Mutex // guards what follows
	done    bool
	text    string
	err     error
	waiting []func(text string, err error)
}

// Error implements error.
func (l *lateReply) Error() string { return "the reply is late" }

// Timeout implements [net.Error]: the client closes the connection.
func (l *lateReply) Timeout() bool { return true }

// Temporary implements [net.Error].
func (l *lateReply) Temporary() bool { return true }

// Unwrap returns the cause of the client's wait.
func (l *lateReply) Unwrap() error { return os.ErrDeadlineExceeded }

// then calls f with the reply, now or when it has come.
func (l *lateReply) then(f func(text string, err error)) {
	l.mu.Lock()
	if !l.done {
		l.waiting = append(l.waiting, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(l.text, l.err)
}

// read waits for the reply and closes the connection.
func (l *lateReply) read(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(keepFor))
	text, err := readReply(bufio.NewReader(conn))
	_ = conn.Close()
	l.mu.Lock()
	l.done, l.text, l.err = true, text, err
	waiting := l.waiting
	l.mu.Unlock()
	for _, f := range waiting {
		f(text, err)
	}
}

// A replyError is an error that Redis replied.
type replyError string

// Error returns the reply.
func (e replyError) Error() string { return string(e) }

// RedisError marks it as one, see [redis.Error].
func (replyError) RedisError() {}

var _ redis.Error = replyError("")

// readReply reads the reply of a script: a string, or an error.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 3 {
		return "", fmt.Errorf("%w: %q", weir.ErrBackend, line)
	}
	kind, rest := line[0], string(line[1:len(line)-2])
	if kind == '-' {
		return "", replyError(rest)
	}
	size, err := strconv.Atoi(rest)
	if kind != '$' || err != nil || size < 0 || size > maxLateReply {
		return "", fmt.Errorf("%w: %q", weir.ErrBackend, line)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	return string(text), nil
}
