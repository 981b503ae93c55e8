package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/net/http2"
)

// receive processes a frame. An error ends the connection.
func (c *conn) receive(frame http2.Frame) error {
	if c.closed || c.phase == closing {
		// It was read already, but a stream that it opened would never be closed.
		return nil
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.onHeaders(f)
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.WindowUpdateFrame:
		return c.onWindowUpdate(f)
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return c.abort(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a client cannot push")
	case *http2.GoAwayFrame:
		// The client opens no further streams; it closes when it has its answers.
	}
	return c.charge(1)
}

// malformed handles a frame that is invalid for one stream only.
func (c *conn) malformed(header http2.FrameHeader, err http2.StreamError) error {
	switch {
	case header.Type == http2.FrameHeaders && err.Cause == nil:
		// Its block was not decoded, so no further one could be.
		return fault(err.Code, ReasonProtocol, "a HEADERS frame has a wrong length")
	case header.Type == http2.FrameHeaders && header.StreamID > c.lastID:
		if err := c.register(header.StreamID); err != nil {
			return err
		}
		if !header.Flags.Has(http2.FlagHeadersEndStream) {
			c.remember(header.StreamID)
		}
	case c.idle(header.StreamID):
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "a frame for a stream that was never opened")
	}
	return c.abort(header.StreamID, err.Code)
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

func (c *conn) onData(f *http2.DataFrame) error {
	id, n := f.StreamID, int64(f.Length)
	if c.idle(id) {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "DATA for a stream that was never opened")
	}
	if n > c.receiveWindow {
		return fault(http2.ErrCodeFlowControl, ReasonProtocol, "more data than the connection's window")
	}
	c.receiveWindow -= n
	st := c.streams[id]
	if st == nil {
		c.allow(n)
		return c.stray(id, f.StreamEnded())
	}
	data, code := f.Data(), http2.ErrCodeNo
	st.got += int64(len(data))
	switch {
	case st.ended:
		code = http2.ErrCodeStreamClosed
	case n > st.receiveWindow:
		code = http2.ErrCodeFlowControl
	case st.length >= 0 && st.got > st.length, f.StreamEnded() && !st.complete():
		code = http2.ErrCodeProtocol
	}
	if code != http2.ErrCodeNo {
		c.allow(n)
		return c.abort(id, code)
	}
	st.receiveWindow -= n
	// Padding is not kept.
	c.allow(n - int64(len(data)))
	st.allow(n - int64(len(data)))
	st.ended = f.StreamEnded()
	if err := c.take(st, data); err != nil || c.streams[id] != st {
		return err
	}
	if f.StreamEnded() {
		return c.ended(st)
	}
	if len(data) < 256 {
		return c.charge(1)
	}
	return nil
}

func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	n := int64(f.Increment)
	if f.StreamID == 0 {
		if c.sendWindow += n; c.sendWindow > maxWindow {
			return fault(http2.ErrCodeFlowControl, ReasonProtocol, "the connection's window is too large")
		}
		c.unblock()
		return c.charge(1)
	}
	if c.idle(f.StreamID) {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "WINDOW_UPDATE for a stream that was never opened")
	}
	if st := c.streams[f.StreamID]; st != nil {
		if st.sendWindow += n; st.sendWindow > maxWindow {
			return c.abort(f.StreamID, http2.ErrCodeFlowControl)
		}
		c.send(st)
	}
	return c.charge(1)
}

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	if c.idle(f.StreamID) {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "RST_STREAM for a stream that was never opened")
	}
	st := c.streams[f.StreamID]
	if st == nil {
		if i := slices.Index(c.aborted, f.StreamID); i >= 0 {
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

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return c.charge(1)
	}
	size := c.streamWindow
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			var of http2.ConnectionError
			errors.As(err, &of)
			return fault(http2.ErrCode(of), ReasonProtocol, "a setting has a wrong value")
		}
		if s.ID == http2.SettingInitialWindowSize {
			size = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The acknowledgement precedes the data that the new windows let pass.
	c.out = appendFrame(c.out, head{0, http2.FrameSettings, http2.FlagSettingsAck, 0})
	if err := c.resize(size); err != nil {
		return err
	}
	return c.charge(10 + f.NumSettings()/16 + len(c.streams)/16)
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

func (c *conn) onPing(f *http2.PingFrame) error {
	if f.IsAck() {
		if f.Data == farewell && c.phase == asking {
			c.depart()
		}
		return c.charge(1)
	}
	c.out = appendFrame(c.out, head{len(f.Data), http2.FramePing, http2.FlagPingAck, 0})
	c.out = append(c.out, f.Data[:]...)
	return c.charge(1)
}
