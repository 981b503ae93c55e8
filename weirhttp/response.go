package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Response is what became of a request: what [Options.Charge] goes by.
type Response struct {
	Request *http.Request
	// Status is what was sent: 500 where the handler panicked before it sent
	// any, 101 where it took the connection over.
	Status int
	// Bytes is how much of a body the handler has written, before compression
	// by whatever surrounds the middleware.
	Bytes int64
}

// recorder notes what passes through a ResponseWriter.
type recorder struct {
	http.ResponseWriter
	status int // 0: not sent yet
	bytes  int64
}

// Unwrap lets http.ResponseController find what it needs.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader notes the status on its way.
func (r *recorder) WriteHeader(status int) {
	// Those below 200 announce the status, which is yet to come.
	if r.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes on their way.
func (r *recorder) Write(p []byte) (int, error) {
	r.begin()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// ReadFrom keeps files going from disk to network by themselves.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(r.ResponseWriter, src)
	if n > 0 {
		r.begin()
	}
	r.bytes += n
	return n, err
}

// Flush is for handlers that do not know http.ResponseController.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError flushes what lies below, if it can.
func (r *recorder) FlushError() error {
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if err == nil {
		r.begin()
	}
	return err
}

// Hijack takes the connection over, if what lies below can give it.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.status == 0 {
		r.status = http.StatusSwitchingProtocols
	}
	return conn, buf, err
}

func (r *recorder) begin() {
	if r.status == 0 {
		r.status = http.StatusOK
	}
}

func (r *recorder) finalStatus(returned bool) int {
	if r.status == 0 && !returned {
		return http.StatusInternalServerError
	}
	r.begin()
	return r.status
}
