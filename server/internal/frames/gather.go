package frames

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// maxQueue bounds the calls that are answered together.
const maxQueue = 256

// answerReady answers the calls that have come, and those together that have to wait. It
// reports whether the goroutine does not read any longer. The one that reads instead goes on
// with the calls that are left.
func (c *conn) answerReady() (yielded bool) {
	for c.begun < len(c.queue) {
		st := c.queue[c.begun]
		c.queue[c.begun] = nil
		if c.begun++; c.direct(st) {
			return true
		}
	}
	c.queue, c.begun = c.queue[:0], 0
	for len(c.later) > 0 {
		st := c.lead()
		if len(c.later) == 0 && c.skip == 0 {
			return c.direct(st)
		}
		// The others do not wait for this group.
		c.skip = max(0, c.skip-1)
		c.mu.Lock()
		c.assign(st)
		c.mu.Unlock()
	}
	return false
}

// direct answers a call, or a group, on the goroutine that reads.
func (c *conn) direct(st *stream) (yielded bool) {
	gathers, leads := c.server.options.Gather != nil, st.group != nil
	st.call.direct = true
	st.call.ctx.reader.Store(&st.call)
	if st.answer() {
		return true
	}
	if !gathers || leads {
		c.yields = 0
	}
	return false
}

// lead returns the first of the calls that wait. It leads those whose deadlines are in the same
// millisecond.
func (c *conn) lead() *stream {
	first := c.later[0]
	end := first.call.ctx.deadline.Truncate(time.Millisecond)
	group, rest := make([]*stream, 0, len(c.later)), c.later[:0]
	for _, st := range c.later {
		if st.call.ctx.deadline.Truncate(time.Millisecond).Equal(end) {
			group = append(group, st)
		} else {
			rest = append(rest, st)
		}
	}
	first.group, c.later = group, rest
	return first
}

// gather has Gather answer a group.
func (s *Server) gather(group []*stream) {
	calls := make([]*Call, len(group))
	for i, st := range group {
		calls[i] = &st.call
	}
	defer func() {
		cause := recover()
		if cause != nil {
			s.options.Logger.Error("gRPC calls panicked together",
				"method", calls[0].method, "panic", fmt.Sprint(cause), slog.String("stack", string(debug.Stack())))
		}
		for _, c := range calls {
			if cause != nil {
				c.Fail(codeInternal, "the call failed; the log says why")
			} else if !c.decided {
				c.Fail(codeInternal, "the handler did not answer")
			}
		}
	}()
	s.options.Gather(calls)
}
