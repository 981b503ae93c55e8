package plainhttp

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// An answer collects the response to one request. It is an [http.ResponseWriter].
type answer struct {
	conn   *conn
	header http.Header
	status int // 0: not given
	body   bytes.Buffer
	names  []string // of the fields of the last answer, in order
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

// closes reports whether the connection ends with the answer, which its request or the server may
// want.
func (a *answer) closes(wanted bool) bool {
	connection := a.header["Connection"]
	return wanted || len(connection) > 0 && strings.EqualFold(connection[0], "close")
}

// appendTo appends the response, with its fields in the order of net/http.
func (a *answer) appendTo(out []byte, closing bool, now time.Time) []byte {
	a.WriteHeader(http.StatusOK)
	out = strconv.AppendInt(append(out, "HTTP/1.1 "...), int64(a.status), 10)
	out = append(append(append(out, ' '), reason(a.status)...), "\r\n"...)
	out = a.appendFields(out)
	if a.header["Date"] == nil {
		out = append(append(append(out, "Date: "...), date(now)...), "\r\n"...)
	}
	if hasBody(a.status) {
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), int64(a.body.Len()), 10), "\r\n"...)
		if _, given := a.header["Content-Type"]; !given && a.body.Len() > 0 {
			out = append(append(append(out, "Content-Type: "...), http.DetectContentType(a.body.Bytes())...), "\r\n"...)
		}
	}
	if closing {
		out = append(out, "Connection: close\r\n"...)
	}
	return append(append(out, "\r\n"...), a.body.Bytes()...)
}

// appendFields appends the fields of the header in their order, but for those that appendTo writes.
func (a *answer) appendFields(out []byte) []byte {
	if !a.sameNames() {
		a.names = a.names[:0]
		for name := range a.header {
			switch name {
			case "Content-Length", "Connection", "Transfer-Encoding", "":
				continue
			}
			if all(name, &inToken) {
				a.names = append(a.names, name)
			}
		}
		slices.Sort(a.names)
	}
	for _, name := range a.names {
		for _, value := range a.header[name] {
			out = append(append(out, name...), ": "...)
			out = append(append(out, oneLine(value)...), "\r\n"...)
		}
	}
	return out
}

// sameNames reports whether the header has the fields of the last one that was appended, and no
// others.
func (a *answer) sameNames() bool {
	if len(a.header) != len(a.names) {
		return false
	}
	for _, name := range a.names {
		if _, given := a.header[name]; !given {
			return false
		}
	}
	return true
}

// oneLine returns a value as one line, without white space at its ends.
func oneLine(value string) string {
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		value = newlines.Replace(value)
	}
	return strings.Trim(value, " \t")
}

var newlines = strings.NewReplacer("\n", " ", "\r", " ")

// forget empties the answer for the next one.
func (a *answer) forget() {
	clear(a.header)
	a.status = 0
	a.body.Reset()
}

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
