package frames

import (
	"context"
	"encoding/binary"
	"net/http"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/net/http2"
)

const (
	maxWindow = 1<<31 - 1
	// maxUnsent is how much may wait for a client to read it before nothing more is
	// read of that client.
	maxUnsent = 256 << 10
	// notable is the size of data that is worth a few frames of the client in return.
	notable = 256
	// maxSpare is the largest memory that a connection keeps while it is busy.
	maxSpare = 64 << 10
)

// mayWrite claims the right to write. It returns false if another goroutine has it, or if
// there is nothing to write.
func (c *conn) mayWrite() bool {
	if c.flushing || len(c.out) == 0 || c.closed {
		return false
	}
	c.flushing = true
	return true
}

// kick starts a pending write.
func (c *conn) kick() {
	if c.mayWrite() {
		c.assign(writing)
	}
}

// flush writes until nothing remains. Only one goroutine does so at a time; calls that
// are answered during a write are sent in the next one.
func (c *conn) flush() {
	// Handlers that are about to answer do so first.
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 && !c.closed {
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		c.stalled = max(1, c.server.now())
		c.mu.Unlock()
		_, err := c.nc.Write(b)
		c.mu.Lock()
		c.stalled = 0
		if cap(b) <= maxSpare {
			c.spare = b
		}
		if err != nil {
			c.end()
		}
		c.changed.Broadcast()
	}
	c.flushing = false
	c.changed.Broadcast()
	c.departed()
}

// answer sends the decision of the call's handler, or of its substitute, once.
func (c *conn) answer(st *stream) {
	call := &st.call
	switch {
	case st.whole:
	case st.plain.status != 0:
		c.answerPlain(st)
	case call.code != 0 || st.flow != nil:
		header := c.header(call)
		if st.flow != nil && st.flow.begun {
			header = ""
		}
		st.trailer, st.whole = appendStatus([]byte(header), call), true
		c.send(st)
	case st.sendWindow >= int64(len(call.reply)+prefixLength) && c.sendWindow >= int64(len(call.reply)+prefixLength) &&
		len(call.reply) <= maxFrame-prefixLength && c.noTable && len(call.trailers) == 0:
		c.answerAtOnce(st)
	default:
		c.sendHeader(st, []byte(c.header(call)), false)
		st.pending = binary.BigEndian.AppendUint32(append(st.pending[:0], call.flag()), uint32(len(call.reply)))
		st.pending = append(st.pending, call.reply...)
		st.trailer, st.whole = appendStatus(nil, call), true
		c.send(st)
	}
}

// header is the first block of gRPC's answers.
func (c *conn) header(call *Call) string {
	header := okHeader
	if call.subtype != "" {
		header = protoHeader
	}
	if call.packed {
		header += gzipHeader
	}
	return header
}

// flag is the first byte of a reply.
func (c *Call) flag() byte {
	if c.packed {
		return 1
	}
	return 0
}

// answerAtOnce sends a whole answer that nothing delays.
func (c *conn) answerAtOnce(st *stream) {
	call, b := &st.call, c.out
	header, n := c.header(call), len(call.reply)
	b = appendFrame(b, head{len(header), http2.FrameHeaders, http2.FlagHeadersEndHeaders, st.id})
	b = append(b, header...)
	b = appendFrame(b, head{prefixLength + n, http2.FrameData, 0, st.id})
	b = append(b, call.flag(), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	b = append(b, call.reply...)
	b = appendFrame(b, head{len(okTrailer), http2.FrameHeaders, http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream, st.id})
	c.out = append(b, okTrailer...)
	c.sendWindow -= int64(prefixLength + n)
	c.close(st)
}

// answerPlain answers a request that is not gRPC.
func (c *conn) answerPlain(st *stream) {
	block := appendField(nil, ":status", strconv.Itoa(st.plain.status))
	block = appendField(block, "grpc-status", strconv.Itoa(int(st.plain.code)))
	block = appendField(block, "content-type", "text/plain; charset=utf-8")
	if st.plain.status == http.StatusMethodNotAllowed {
		block = appendField(block, "allow", "POST")
	}
	st.whole = true
	c.sendHeader(st, block, st.plain.head)
	if st.plain.head {
		c.close(st)
		return
	}
	st.pending = append(st.pending[:0], st.plain.text...)
	c.send(st)
}

// sendHeader sends a block of headers.
func (c *conn) sendHeader(st *stream, block []byte, last bool) {
	if !c.noTable {
		c.noTable = true
		block = append([]byte(noTable), block...)
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		part := block[:min(len(block), maxFrame)]
		block = block[len(part):]
		if len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.out = appendFrame(c.out, head{len(part), kind, flags, st.id})
		c.out = append(c.out, part...)
		if len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// send sends as much of a stream as its client wants.
func (c *conn) send(st *stream) {
	for st.unsent() > 0 && st.sendWindow > 0 && c.sendWindow > 0 {
		n := min(st.unsent(), st.sendWindow, c.sendWindow, maxFrame)
		last := st.whole && st.trailer == nil && n == st.unsent()
		flags := http2.Flags(0)
		if last {
			flags = http2.FlagDataEndStream
		}
		c.out = appendFrame(c.out, head{int(n), http2.FrameData, flags, st.id})
		c.out = append(c.out, st.pending[st.sent:st.sent+int(n)]...)
		st.sendWindow -= n
		c.sendWindow -= n
		if n >= notable {
			// The client moves windows for it.
			c.soothe(2)
		}
		st.sent += int(n)
		if last {
			c.close(st)
			return
		}
	}
	if st.flow != nil {
		st.flow.moved.Broadcast()
		c.askReceipt(st.flow)
	}
	switch {
	case st.unsent() > 0:
		if st.waits == 0 {
			st.waits = c.server.soon()
		}
		if c.sendWindow <= 0 && !st.queued {
			st.queued = true
			c.blocked = append(c.blocked, st)
		}
	case st.whole && st.trailer != nil:
		c.sendHeader(st, st.trailer, true)
		c.close(st)
	case st.whole:
		c.out = appendFrame(c.out, head{0, http2.FrameData, http2.FlagDataEndStream, st.id})
		c.close(st)
	}
}

// unsent is how much data waits for a window.
func (st *stream) unsent() int64 { return int64(len(st.pending) - st.sent) }

// unblock sends the data that waited for the connection's window, in turn.
func (c *conn) unblock() {
	for len(c.blocked) > 0 && c.sendWindow > 0 {
		st := c.blocked[0]
		c.blocked = slices.Delete(c.blocked, 0, 1)
		st.queued = false
		if st.open {
			c.send(st)
		}
	}
}

// close closes a stream that is answered. If the client still sends, it resets the
// stream.
func (c *conn) close(st *stream) {
	if !st.ended {
		c.remember(st.id)
		c.resetStream(st.id, http2.ErrCodeNo)
	}
	c.forget(st, context.Canceled)
}
