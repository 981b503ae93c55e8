package plainhttp

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// An answer collects the response to one request. It is an [http.ResponseWriter].
type answer struct {
	conn   net.Conn
	header http.Header
	status int // 0: not given
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter]. Informational statuses are not sent.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if !hasBody(a.status) {
		return 0, http.ErrBodyNotAllowed
	}
	return a.body.Write(p)
}

// SetReadDeadline is for [http.ResponseController].
func (a *answer) SetReadDeadline(t time.Time) error { return a.conn.SetReadDeadline(t) }

// SetWriteDeadline is for [http.ResponseController].
func (a *answer) SetWriteDeadline(t time.Time) error { return a.conn.SetWriteDeadline(t) }

func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// appendTo appends the response, with its fields in the order of net/http, and reports whether the connection ends with it.
func (a *answer) appendTo(out *bytes.Buffer, closing bool) bool {
	a.WriteHeader(http.StatusOK)
	closing = closing || strings.EqualFold(a.header.Get("Connection"), "close")
	out.WriteString("HTTP/1.1 ")
	line := strconv.AppendInt(out.AvailableBuffer(), int64(a.status), 10)
	out.Write(append(append(append(line, ' '), reason(a.status)...), "\r\n"...))
	_ = a.header.WriteSubset(out, own) // a buffer has no errors
	fields := out.AvailableBuffer()
	if a.header["Date"] == nil {
		fields = append(append(append(fields, "Date: "...), date(time.Now())...), "\r\n"...)
	}
	if hasBody(a.status) {
		fields = append(strconv.AppendInt(append(fields, "Content-Length: "...), int64(a.body.Len()), 10), "\r\n"...)
		if _, given := a.header["Content-Type"]; !given && a.body.Len() > 0 {
			fields = append(append(append(fields, "Content-Type: "...), http.DetectContentType(a.body.Bytes())...), "\r\n"...)
		}
	}
	if closing {
		fields = append(fields, "Connection: close\r\n"...)
	}
	out.Write(append(fields, "\r\n"...))
	out.Write(a.body.Bytes())
	return closing
}

// own are the fields that appendTo writes itself.
var own = map[string]bool{"Content-Length": true, "Connection": true, "Transfer-Encoding": true}

func reason(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "status code " + strconv.Itoa(status)
}

// A second has the text of a date.
type second struct {
	unix int64
	text string
}

var now atomic.Pointer[second]

func date(t time.Time) string {
	s := now.Load()
	if s == nil || s.unix != t.Unix() {
		s = &second{t.Unix(), t.UTC().Format(http.TimeFormat)}
		now.Store(s)
	}
	return s.text
}
