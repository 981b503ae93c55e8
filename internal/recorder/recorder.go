// Package recorder observes responses on their way to the client.
package recorder

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A Recorder is an http.ResponseWriter that passes everything through to another one,
// and records the status and the size of the body.
type Recorder struct {
	http.ResponseWriter
	status int // 0: not sent yet
	bytes  int64
}

// New returns a Recorder of what is written to w.
func New(w http.ResponseWriter) *Recorder { return &Recorder{ResponseWriter: w} }

// Of returns w if it is a Recorder already, else a new one: the handlers of one response can
// share it.
func Of(w http.ResponseWriter) *Recorder {
	if r, is := w.(*Recorder); is {
		return r
	}
	return New(w)
}

// Begun reports whether the status was sent. Informational statuses below 200 do not
// count, except 101, with which a handler takes over the connection.
func (r *Recorder) Begun() bool { return r.status != 0 }

// Status returns the status that was sent, or 200, which net/http sends if the handler
// returns without sending one.
func (r *Recorder) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// Bytes returns the size of the body so far.
func (r *Recorder) Bytes() int64 { return r.bytes }

// Unwrap returns the underlying writer, for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader records the status and passes it through.
func (r *Recorder) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes and passes them through.
func (r *Recorder) Write(p []byte) (int, error) {
	r.begin(http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// ReadFrom counts the bytes that it copies. It lets the underlying writer use sendfile.
func (r *Recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(r.ResponseWriter, src)
	if n > 0 {
		r.begin(http.StatusOK)
	}
	r.bytes += n
	return n, err
}

// Flush is for handlers that do not use http.ResponseController.
func (r *Recorder) Flush() { _ = r.FlushError() }

// FlushError flushes the underlying writer, if it can.
func (r *Recorder) FlushError() error {
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if err == nil {
		r.begin(http.StatusOK)
	}
	return err
}

// Hijack takes over the connection, if the underlying writer supports that.
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.begin(http.StatusSwitchingProtocols)
	}
	return conn, buf, err
}

// begin records the status unless one was sent before.
func (r *Recorder) begin(status int) {
	if r.status == 0 {
		r.status = status
	}
}
