package redisengine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// once is a command that the client must not send again when its reply is lost:
// the script may have run.
type once struct{ *redis.Cmd }

// NoRetry implements the client's interface for that.
func (once) NoRetry() bool { return true }

// send runs the script of a batch that is packed, once: by its hash, or by its text if
// Redis does not know the hash, because nothing has run then.
func (s *Store) send(ctx context.Context, b *batch) (answer, error) {
	b.args[0], b.args[1] = "evalsha", &b.script.sha
	uploads := s.uploads.done.Load()
	reply, err := s.await(ctx, b.args)
	if unknown(err) {
		l := &load{batch: b}
		s.upload(ctx, []*load{l}, uploads)
		reply, err = l.reply, l.err
	}
	switch {
	case err == nil:
		return s.read(b, reply)
	case s.punctual && !b.written, cutShort(err):
		// There was no connection, none that was ready in time, or one that did not take
		// the whole command.
		return answer{}, unsent(err)
	}
	return answer{}, classify(err)
}

// unknown reports whether a node does not know a script.
func unknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// await sends one command and waits for its reply, at most until ctx ends.
func (s *Store) await(ctx context.Context, command []any) (string, error) {
	cmd := once{redis.NewCmd(ctx, command...)}
	cmd.SetFirstKeyPos(head)
	if s.punctual {
		_ = s.client.Process(ctx, cmd)
		return cmd.Text()
	}
	if !s.within(ctx, func() { _ = s.client.Process(ctx, cmd) }) {
		return "", ctx.Err()
	}
	return cmd.Text()
}

// within calls the client and reports whether it returned before ctx ended. A client that
// ignores ctx goes on in a goroutine, which ends with the client's own timeouts.
func (s *Store) within(ctx context.Context, call func()) bool {
	if s.punctual {
		call()
		return true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// unsent classifies the error of a request that was not written.
func unsent(err error) error {
	if err = classify(err); !errors.Is(err, weir.ErrAmbiguous) {
		return err
	}
	return fmt.Errorf("%w: it was not sent: %w", weir.ErrNotApplied, unclassed{err})
}

// unclassed is an error that hides its class.
type unclassed struct{ error }

// Is hides the class.
func (u unclassed) Is(target error) bool {
	return target != weir.ErrAmbiguous && errors.Is(u.error, target)
}

// As finds an error that the error wraps.
func (u unclassed) As(target any) bool { return errors.As(u.error, target) }

// classify gives an error the class that says what is known about the charges.
func classify(err error) error {
	class := weir.ErrAmbiguous
	var reply redis.Error
	switch {
	case errors.As(err, &reply) && strings.HasPrefix(reply.Error(), slotWithoutMaster):
		return fmt.Errorf("%w: %w: %w", weir.ErrNotApplied, err, outage.ErrNodeWell)
	case errors.As(err, &reply) && refused(reply.Error()):
		class = weir.ErrNotApplied
	case redis.IsAuthError(err) || redis.IsPermissionError(err) || errors.As(err, &reply) && barred(reply.Error()) || distrusted(err):
		class = weir.ErrMisconfigured
	case errors.As(err, &reply):
		class = weir.ErrBackend
	case undialled(err):
		class = weir.ErrNotApplied
	}
	return fmt.Errorf("%w: %w", class, err)
}
