package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

// How often a credential is read again.
const (
	fileInterval    = 5 * time.Second
	commandInterval = time.Minute
	tokenInterval   = 10 * time.Minute // a token of AWS is valid for 15 minutes
	// commandTimeout bounds a run of the command.
	commandTimeout = 10 * time.Second
	// refreshPause is the shortest time between two readings that connections cause.
	refreshPause = time.Second
)

// A credential is a password that changes. Once the store has accepted a new one, each
// connection is replaced before its next use; a call in flight ends on the old one, and a
// call whose new connection still sent the old one is made again. The password is read
// again in the background from the first connection until close.
type credential struct {
	setting  string // for messages
	user     string
	interval time.Duration
	// read returns the current password.
	read func(context.Context) (string, error)
	// accepted returns nil if the store accepts a password. Nil: passwords of one
	// connection do not concern the others.
	accepted func(ctx context.Context, password string) error
	logger   *slog.Logger

	reading    sync.Mutex   // held while the password is read
	generation atomic.Int64 // of the password

	mu       sync.Mutex // guards what follows
	password string
	asOf     time.Time // when the password was read
	failed   bool      // the last reading failed
	started  bool

	wake   chan struct{} // asks for another reading
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newCredential(c *credential, logger *slog.Logger) *credential {
	c.logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	c.wake = make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// forConnection returns the user and the password for a new connection.
func (c *credential) forConnection(context.Context) (user, password string, err error) {
	password, asOf, err := c.known()
	switch {
	case err != nil:
		return "", "", err
	case password == "":
		if err := c.update(); err != nil {
			return "", "", err
		}
		password, _, _ = c.known()
	case time.Since(asOf) > refreshPause:
		// The password may have changed, and the store have closed its connections.
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return c.user, password, nil
}

// known returns the password and when it was read; it is empty at first.
func (c *credential) known() (password string, asOf time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return "", time.Time{}, fmt.Errorf("server: %s: the store is closed", c.setting)
	}
	if !c.started {
		c.started = true
		c.done.Go(c.refresh)
	}
	return c.password, c.asOf, nil
}

// update reads the password, which holds from now on if the store accepts it.
func (c *credential) update() error {
	begun := time.Now()
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	before, asOf := c.password, c.asOf
	c.mu.Unlock()
	if before != "" && asOf.After(begun) {
		// Another caller has read it meanwhile.
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, commandTimeout)
	defer cancel()
	password, err := c.read(ctx)
	if err == nil && before != "" && password != before && c.accepted != nil {
		if err = c.accepted(ctx, password); err == nil {
			defer c.generation.Add(1)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asOf = time.Now()
	if err != nil && before != "" && !c.failed && c.ctx.Err() == nil {
		c.logger.Warn("the store does not have the new password, the last one holds", "setting", c.setting, "error", err)
	}
	if c.failed = err != nil; !c.failed {
		c.password = password
	}
	return err
}

// refresh reads the password again and again, until close.
func (c *credential) refresh() {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		_ = c.update()
	}
}

// close ends the background work and waits for it.
func (c *credential) close() error {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.done.Wait()
	return nil
}

// dial returns a dialer whose connections the client replaces once their password has
// changed.
func (c *credential) dial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		aging := &agingConn{credential: c, generation: c.generation.Load()}
		var err error
		if aging.Conn, err = dial(ctx, network, addr); err != nil {
			return nil, err
		}
		return aging, nil
	}
}

// An agingConn is a connection that was authenticated by a generation of a credential.
type agingConn struct {
	net.Conn
	*credential
	generation int64
}

var errAged = errors.New("the connection has an old password")

// SyscallConn returns the socket, by which the client checks a connection that was idle: one
// that fails is replaced.
func (c *agingConn) SyscallConn() (syscall.RawConn, error) {
	if c.generation != c.credential.generation.Load() {
		return nil, errAged
	}
	if socket, is := c.Conn.(syscall.Conn); is {
		return socket.SyscallConn()
	}
	return noSocket{}, nil
}

// NetConn returns the connection below, as that of crypto/tls does.
func (c *agingConn) NetConn() net.Conn { return c.Conn }

// noSocket is the socket of a TLS connection, which nobody may read from but TLS.
type noSocket struct{}

func (noSocket) Control(func(uintptr)) error    { return nil }
func (noSocket) Read(func(uintptr) bool) error  { return nil }
func (noSocket) Write(func(uintptr) bool) error { return nil }

// DialHook dials as before.
func (c *credential) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook makes a command again that was not sent because its connection sent an old
// password.
func (c *credential) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.again(func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is a ProcessHook for commands that are sent together.
func (c *credential) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.again(func() error { return next(ctx, cmds) })
	}
}

// again makes a call once more if its password was refused and is another one by now. Only a
// connection that begins is refused so, and no command was sent on it.
func (c *credential) again(call func() error) error {
	before := c.current()
	err := call()
	if redis.HasErrorPrefix(err, "WRONGPASS ") && c.current() != before {
		return call()
	}
	return err
}

func (c *credential) current() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.password
}

// accepts returns a function that tries a password on a connection of its own.
func (t *target) accepts() func(ctx context.Context, password string) error {
	own, options := *t, *t.Options
	own.Options = &options
	own.CredentialsProviderContext, own.Dialer = nil, nil
	own.PoolSize, own.MinIdleConns, own.MaxActiveConns = 1, 0, 0
	return func(ctx context.Context, password string) error {
		own.Password = password // one after the other is tried
		client := own.client()
		defer client.Close()
		// Without the permission for PING the user is known.
		if err := client.Ping(ctx).Err(); err != nil && !redis.IsPermissionError(err) {
			return err
		}
		return nil
	}
}

// fromFile returns the credential whose password is the only line of a file.
func fromFile(t *target, file string, logger *slog.Logger) *credential {
	const setting = "store password file"
	return newCredential(&credential{
		setting: setting, user: t.Username, interval: fileInterval, accepted: t.accepts(),
		read: func(context.Context) (string, error) { return settingfile.Line(setting, file) },
	}, logger)
}

// fromCommand returns the credential whose password a command prints on its only line.
func fromCommand(t *target, command string, logger *slog.Logger) (*credential, error) {
	const setting = "store password command"
	words := strings.Fields(command)
	if len(words) == 0 {
		return nil, &weir.InvalidError{Field: setting, Value: `""`, Want: "a program and its arguments"}
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, &weir.InvalidError{Field: setting, Value: words[0], Want: "a program that can be run, and its arguments: " + settingfile.Reason(err)}
	}
	return newCredential(&credential{
		setting: setting, user: t.Username, interval: commandInterval, accepted: t.accepts(),
		read: func(ctx context.Context) (string, error) { return run(ctx, setting, words) },
	}, logger), nil
}

// run returns the only line that a command prints. Errors do not repeat what it prints.
func run(ctx context.Context, setting string, words []string) (string, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("server: %s: %w", setting, err)
	}
	line := strings.TrimRight(out.String(), "\r\n")
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", &weir.InvalidError{Field: setting, Value: words[0], Want: "a command that prints one line, the password"}
	}
	return line, nil
}
