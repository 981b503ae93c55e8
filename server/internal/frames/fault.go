package frames

import "golang.org/x/net/http2"

// A faultError ends a connection for what its client did.
type faultError struct {
	code   http2.ErrCode
	reason Reason
	text   string
}

// Error says what the client did.
func (f *faultError) Error() string { return f.text }

func fault(code http2.ErrCode, reason Reason, text string) error {
	return &faultError{code, reason, text}
}

// maxPatience is how many frames a client may send in a row that are no calls.
// Every call that is answered and every second restore some of the patience:
// a client that answers pings, moves windows or cancels calls while it calls never
// gets near the end of it.
const (
	maxPatience     = 10_000
	patienceOfCall  = 4
	patienceASecond = 200
)

// charge takes some of the patience.
func (c *conn) charge(n int) error {
	if c.patience -= n; c.patience >= 0 {
		return nil
	}
	return fault(http2.ErrCodeEnhanceYourCalm, ReasonFlood, "too many frames that are no calls")
}

func (c *conn) soothe(n int) { c.patience = min(c.patience+n, maxPatience) }

// fail tells the client why the connection ends.
func (c *conn) fail(err error) {
	if f, ok := err.(*faultError); ok && c.phase != closing {
		c.server.count(f.reason, c.nc, "error", f.text)
		c.goAway(f.code, c.lastID, f.text)
	}
	c.phase = closing
	c.changed.Broadcast()
}

// goAway sends a GOAWAY.
func (c *conn) goAway(code http2.ErrCode, last uint32, text string) {
	c.out = appendFrame(c.out, head{8 + len(text), http2.FrameGoAway, 0, 0})
	c.out = appendUint32(c.out, last)
	c.out = appendUint32(c.out, uint32(code))
	c.out = append(c.out, text...)
}
