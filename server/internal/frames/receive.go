package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/net/http2"
)

// next reads and processes a frame. An error ends the connection.
func (c *conn) next() error {
	h, payload, err := c.input.frame()
	if err != nil {
		return err
	}
	return c.process(h, payload)
}

// process processes a frame. Header blocks are decoded without the lock.
func (c *conn) process(h head, payload []byte) error {
	if (c.block.id != 0) != (h.kind == http2.FrameContinuation) || c.block.id != 0 && h.id != c.block.id {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a header block is interrupted")
	}
	var err error
	switch h.kind {
	case http2.FrameHeaders:
		err = c.beginBlock(h, payload)
	case http2.FrameContinuation:
		err = c.continueBlock(h, payload)
	default:
		err = h.check()
	}
	if err != nil || c.block.id != 0 && h.kind == http2.FrameContinuation {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.block.id != 0 {
		return c.holdBlock()
	}
	return c.receive(h, payload)
}

// holdBlock takes memory for a header block that goes on in further frames, and gives the
// client time for them.
func (c *conn) holdBlock() error {
	bytes := int64(2 * c.server.options.MaxHeaderList)
	if !c.reserve(bytes) {
		return fault(http2.ErrCodeEnhanceYourCalm, ReasonHeader, errFull.Text)
	}
	c.blockHeld, c.blockBegan = bytes, c.server.soon()
	return nil
}

// dropBlock returns the memory of a header block that has ended, if it was held.
func (c *conn) dropBlock() {
	if c.blockHeld > 0 {
		c.unreserve(c.blockHeld)
		c.blockHeld = 0
	}
}

// check returns an error if a frame other than HEADERS and CONTINUATION has a wrong length,
// or should belong to a stream and does not, or the other way round.
func (h *head) check() error {
	length, ofStream := h.length, h.id != 0
	wrong, misplaced := false, false
	switch h.kind {
	case http2.FrameData:
		misplaced = !ofStream
	case http2.FramePriority:
		wrong, misplaced = length != 5, !ofStream
	case http2.FrameRSTStream:
		wrong, misplaced = length != 4, !ofStream
	case http2.FrameSettings:
		wrong, misplaced = length%6 != 0 || length > 0 && h.flags.Has(http2.FlagSettingsAck), ofStream
	case http2.FramePing:
		wrong, misplaced = length != 8, ofStream
	case http2.FrameGoAway:
		wrong, misplaced = length < 8, ofStream
	case http2.FrameWindowUpdate:
		wrong = length != 4
	}
	switch {
	case misplaced:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a frame for the wrong kind of stream")
	case wrong:
		return fault(http2.ErrCodeFrameSize, ReasonProtocol, "a frame has the wrong length")
	}
	return nil
}

// receive processes a frame, or the header block that it ends. An error ends the connection.
func (c *conn) receive(h head, payload []byte) error {
	if c.closed || c.phase == closing {
		// It was read already, but a stream that it opened would never be closed.
		return nil
	}
	switch h.kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		c.dropBlock()
		return c.onHeaders(h.id)
	case http2.FrameData:
		return c.onData(h, payload)
	case http2.FrameWindowUpdate:
		return c.onWindowUpdate(h.id, int64(binary.BigEndian.Uint32(payload)&^(1<<31)))
	case http2.FrameRSTStream:
		return c.onReset(h.id)
	case http2.FrameSettings:
		return c.onSettings(h, payload)
	case http2.FramePing:
		return c.onPing(h, payload)
	case http2.FramePriority:
		if binary.BigEndian.Uint32(payload)&^(1<<31) == h.id {
			if c.idle(h.id) {
				return fault(http2.ErrCodeProtocol, ReasonProtocol, "a stream that was never opened depends on itself")
			}
			return c.abort(h.id, http2.ErrCodeProtocol)
		}
	case http2.FramePushPromise:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a client cannot push")
	case http2.FrameGoAway:
		// The client opens no further streams; it closes when it has its answers.
	}
	return c.charge(1)
}

// unpadded returns the payload of a frame without its padding.
func unpadded(h head, payload []byte) ([]byte, error) {
	const padded = http2.FlagDataPadded // HEADERS have the same flag
	if !h.flags.Has(padded) {
		return payload, nil
	}
	if len(payload) == 0 {
		return nil, fault(http2.ErrCodeFrameSize, ReasonProtocol, "a padded frame has no length of its padding")
	}
	if int(payload[0]) >= len(payload) {
		return nil, fault(http2.ErrCodeProtocol, ReasonProtocol, "a frame has more padding than bytes")
	}
	return payload[1 : len(payload)-int(payload[0])], nil
}

// idle reports whether the client has never opened a stream.
func (c *conn) idle(id uint32) bool { return id > c.lastID || id%2 == 0 }

// register takes note that a client opens a stream.
func (c *conn) register(id uint32) error {
	switch {
	case id%2 == 0:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a client's streams have odd numbers")
	case id <= c.lastID && id >= c.gap && id < c.gapEnd:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a stream's number is lower than the last one")
	case id <= c.lastID:
		return fault(http2.ErrCodeStreamClosed, ReasonProtocol, "HEADERS for a stream that is closed")
	}
	if id > c.lastID+2 {
		c.gap, c.gapEnd = c.lastID+1, id
	}
	c.lastID = id
	return nil
}

// abort resets a stream.
func (c *conn) abort(id uint32, code http2.ErrCode) error {
	if st := c.streams[id]; st != nil {
		if !st.ended {
			c.remember(id)
		}
		c.forget(st, context.Canceled)
	}
	c.resetStream(id, code)
	return c.charge(1)
}

func (c *conn) resetStream(id uint32, code http2.ErrCode) {
	c.out = appendFrame(c.out, head{4, http2.FrameRSTStream, 0, id})
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

// remember takes note of a stream that the server has ended and the client has not.
func (c *conn) remember(id uint32) {
	const most = 1024
	if len(c.aborted) == most {
		c.aborted = slices.Delete(c.aborted, 0, 1)
	}
	c.aborted = append(c.aborted, id)
}

// stray judges a frame for a stream that is not open. Frames that the
// client sent before it knew that the server had ended the stream are no fault.
func (c *conn) stray(id uint32, ends bool) error {
	i := slices.Index(c.aborted, id)
	if i < 0 {
		return fault(http2.ErrCodeStreamClosed, ReasonProtocol, "a frame for a stream that is closed")
	}
	if ends {
		c.aborted = slices.Delete(c.aborted, i, i+1)
	}
	return c.charge(1)
}

func (c *conn) onData(h head, payload []byte) error {
	id, n, ends := h.id, int64(h.length), h.flags.Has(http2.FlagDataEndStream)
	data, err := unpadded(h, payload)
	if err != nil {
		return err
	}
	if c.idle(id) {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "DATA for a stream that was never opened")
	}
	c.allow(n)
	st := c.streams[id]
	if st == nil {
		return c.stray(id, ends)
	}
	code := http2.ErrCodeNo
	st.got += int64(len(data))
	switch {
	case st.ended:
		code = http2.ErrCodeStreamClosed
	case n > st.receiveWindow:
		code = http2.ErrCodeFlowControl
	case st.length >= 0 && st.got > st.length, ends && !st.complete():
		code = http2.ErrCodeProtocol
	}
	if code != http2.ErrCodeNo {
		return c.abort(id, code)
	}
	st.receiveWindow -= n
	st.ended = ends
	st.allow(n - int64(len(data))) // padding is not kept
	if err := c.take(st, data); err != nil || c.streams[id] != st {
		return err
	}
	if ends {
		return c.ended(st)
	}
	if len(data) < notable {
		return c.charge(1)
	}
	return nil
}

func (c *conn) onWindowUpdate(id uint32, n int64) error {
	switch {
	case id == 0 && n == 0:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a WINDOW_UPDATE of 0")
	case id == 0:
		if c.sendWindow += n; c.sendWindow > maxWindow {
			return fault(http2.ErrCodeFlowControl, ReasonProtocol, "the connection's window is too large")
		}
		c.unblock()
		return c.charge(1)
	case c.idle(id):
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "WINDOW_UPDATE for a stream that was never opened")
	case n == 0:
		return c.abort(id, http2.ErrCodeProtocol)
	}
	if st := c.streams[id]; st != nil {
		if st.sendWindow += n; st.sendWindow > maxWindow {
			return c.abort(id, http2.ErrCodeFlowControl)
		}
		c.send(st)
	}
	return c.charge(1)
}

func (c *conn) onReset(id uint32) error {
	if c.idle(id) {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "RST_STREAM for a stream that was never opened")
	}
	st := c.streams[id]
	if st == nil {
		if i := slices.Index(c.aborted, id); i >= 0 {
			c.aborted = slices.Delete(c.aborted, i, i+1)
		}
		return c.charge(1)
	}
	hasty := c.read.Sub(st.began) < premature
	c.forget(st, context.Canceled)
	if hasty {
		return c.charge(1)
	}
	return nil
}

func (c *conn) onSettings(h head, payload []byte) error {
	if h.flags.Has(http2.FlagSettingsAck) {
		for _, st := range c.streams {
			st.receiveWindow -= c.extra
		}
		c.extra = 0
		return c.charge(1)
	}
	size := c.streamWindow
	for p := payload; len(p) > 0; p = p[6:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := s.Valid(); err != nil {
			var of http2.ConnectionError
			errors.As(err, &of)
			return fault(http2.ErrCode(of), ReasonProtocol, "a setting has a wrong value")
		}
		if s.ID == http2.SettingInitialWindowSize {
			size = int64(s.Val)
		}
	}
	// The acknowledgement precedes the data that the new windows let pass.
	c.out = appendFrame(c.out, head{0, http2.FrameSettings, http2.FlagSettingsAck, 0})
	if err := c.resize(size); err != nil {
		return err
	}
	return c.charge(10 + len(payload)/6/16 + len(c.streams)/16)
}

// resize moves the windows of all streams to a new initial size.
func (c *conn) resize(size int64) error {
	delta := size - c.streamWindow
	if delta == 0 {
		return nil
	}
	c.streamWindow = size
	for _, st := range c.streams {
		if st.sendWindow += delta; st.sendWindow > maxWindow {
			return fault(http2.ErrCodeFlowControl, ReasonProtocol, "a stream's window is too large")
		}
		if delta > 0 {
			c.send(st)
		}
	}
	return nil
}

func (c *conn) onPing(h head, data []byte) error {
	if h.flags.Has(http2.FlagPingAck) {
		if [8]byte(data) == farewell && c.phase == asking {
			c.depart()
		}
		if p := c.receipts[[8]byte(data)]; p != nil {
			delete(c.receipts, p.data)
			close(p.read)
		}
		return c.charge(1)
	}
	c.out = appendFrame(c.out, head{len(data), http2.FramePing, http2.FlagPingAck, 0})
	c.out = append(c.out, data...)
	return c.charge(1)
}
