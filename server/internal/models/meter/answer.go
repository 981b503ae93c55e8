package meter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// answered prepares an answer of the provider on its way to the client.
func (p *Proxy) answered(answer *http.Response) error {
	x := exchangeOf(answer.Request)
	p.Observer.FirstByte(time.Since(x.began))
	answer.Header.Set("Weir-Id", x.id)
	for name, values := range x.headers {
		answer.Header[name] = values
	}
	if x.own == nil || answer.StatusCode < http.StatusOK {
		return nil
	}
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		// The provider does not know the caller, who must not use up what others share.
		x.own.drop()
		return nil
	case status >= http.StatusBadRequest:
		x.own.refund()
		return nil
	}
	r := &reading{p: p, x: x, from: answer.Body, ctx: answer.Request.Context()}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch coding := answer.Header.Get("Content-Encoding"); {
	case coding != "" && coding != "identity":
		r.reason = UsageEncoded
		r.meter = &opaque{}
	case kind == "text/event-stream":
		p.Observer.Stream(x.own.key, x.own.model, 1)
		r.stream = true
		s := &stream{form: x.form, endpoint: x.endpoint, removes: x.removes}
		r.meter = s
		if x.removes {
			answer.Header.Del("Content-Length")
			answer.ContentLength = -1
		}
	default:
		r.meter = &document{form: x.form, endpoint: x.endpoint}
	}
	answer.Body = r
	return nil
}

// A meterer reads an answer. Feed takes what came and appends what goes on to the client.
// State says whether it ended in order, and whether the provider broke it off. End returns what
// was used; reason says why it does not report all, and is empty if it does.
type meterer interface {
	feed(to, came []byte) []byte
	rest(to []byte) []byte
	state() (ended, broke bool)
	end() (u usage, reason string)
}

// opaque is an answer that cannot be read.
type opaque struct{}

func (*opaque) feed(to, came []byte) []byte { return append(to, came...) }
func (*opaque) rest(to []byte) []byte       { return to }
func (*opaque) state() (ended, broke bool)  { return false, false }
func (*opaque) end() (usage, string)        { return usage{}, UsageEncoded }

// A reading is the body of an answer. It is settled when its end is read or it is closed.
type reading struct {
	p      *Proxy
	x      *exchange
	from   io.ReadCloser
	ctx    context.Context
	meter  meterer
	stream bool
	reason string
	ready  []byte // for the client
	taken  int
	err    error // after what is ready
	closed bool
}

// Read reads what goes on to the client.
func (r *reading) Read(to []byte) (int, error) {
	for r.taken == len(r.ready) && r.err == nil {
		n, err := r.from.Read(to)
		r.ready, r.taken = r.meter.feed(r.ready[:0], to[:n]), 0
		if err != nil {
			r.finish(err)
		}
	}
	n := copy(to, r.ready[r.taken:])
	r.taken += n
	if r.taken == len(r.ready) {
		if cap(r.ready) > len(to) {
			r.ready = nil
		}
		r.ready, r.taken = r.ready[:0], 0
		return n, r.err
	}
	return n, nil
}

// finish settles the request at the end of its answer. A stream that Weir cuts ends with
// an error event, because clients take one that only ends for a success.
func (r *reading) finish(err error) {
	r.err = err
	if errors.Is(err, io.EOF) {
		r.ready = r.meter.rest(r.ready)
		r.settle("")
		return
	}
	cause := context.Cause(r.ctx)
	late, stopped := errors.Is(cause, errLate), errors.Is(cause, errCut)
	switch {
	case r.x.client.Err() != nil:
		r.settle(UsageClientLeft)
		return
	case r.stream && late:
		r.ready = append(r.ready, event(r.x, failed(http.StatusGatewayTimeout, "upstream", "the upstream timeout is over"))...)
		r.err = io.EOF
	case r.stream && stopped:
		r.ready = append(r.ready, event(r.x, failed(http.StatusServiceUnavailable, "stopping", "the server stops"))...)
		r.err = io.EOF
	default:
		r.ready = r.meter.rest(r.ready)
	}
	r.settle(UsageCut)
}

// settle settles the request; why says what cut the answer off, empty for nothing.
func (r *reading) settle(why string) {
	if r.closed {
		return
	}
	r.closed = true
	if r.stream {
		r.p.Observer.Stream(r.x.own.key, r.x.own.model, -1)
	}
	u, reason := r.meter.end()
	ended, broke := r.meter.state()
	u.cut = r.stream && (broke || why != "" && !ended)
	if r.x.endpoint == countTokens {
		u, reason = usage{hasInput: true, hasOutput: true}, ""
	}
	if reason != "" {
		if why != "" && reason == UsageAbsent {
			reason = why
		}
		r.p.noUsage(r.x, reason)
	}
	r.x.own.settle(u, false)
}

// Close settles the request. If its answer was not read to the end, the client left, and the
// rest of the answer is read without it.
func (r *reading) Close() error {
	if !r.closed && r.err == nil {
		r.p.left(r.x)
		r.readOn()
	}
	err := r.from.Close()
	r.settle(UsageClientLeft)
	return err
}

// maxReadOn is how many bytes of one answer are read after its client has left.
const maxReadOn = 4 << 20

// readOn reads the rest of the answer for its usage, until the exchange is cancelled.
func (r *reading) readOn() {
	buffer := buffers{}.Get()
	defer buffers{}.Put(buffer)
	for left := maxReadOn; left > 0; {
		n, err := r.from.Read(buffer)
		left -= n
		r.ready = r.meter.feed(r.ready[:0], buffer[:n])
		if errors.Is(err, io.EOF) {
			r.settle("")
		}
		if err != nil {
			return
		}
	}
}

// event is a refusal as the last event of a stream.
func event(x *exchange, why *refusal) []byte {
	text := why.body(x.form, x.id)
	switch {
	case x.form == Anthropic:
		return append(append([]byte("event: error\ndata: "), text...), "\n\n"...)
	case x.endpoint == responses:
		return append(append([]byte("event: error\ndata: "), flat(why)...), "\n\n"...)
	}
	return append(append([]byte("data: "), text...), "\n\n"...)
}

// flat is a refusal as an event of OpenAI's responses.
func flat(why *refusal) []byte {
	text, err := json.Marshal(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
		Number  int     `json:"sequence_number"`
	}{"error", why.code, why.message, nil, 0})
	if err != nil {
		panic(err) // It is made of texts.
	}
	return text
}
