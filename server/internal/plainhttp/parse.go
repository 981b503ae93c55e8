package plainhttp

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// A shape is a kind of request that is read here.
type shape struct {
	start  string // of the request line, up to the query or to the end of the line
	method string
	path   string
	query  bool // a query follows
}

const (
	lineVersion = " HTTP/1.1"
	lineEnd     = lineVersion + "\r\n"
)

func post(path string) shape {
	return shape{start: "POST " + path + lineEnd, method: http.MethodPost, path: path}
}

var shapes = []shape{
	{start: "GET /v1/auth?", method: http.MethodGet, path: "/v1/auth", query: true},
	post("/v1/take"), post("/v1/settle"), post("/v1/release"),
}

// Bounds of a request that is read here.
const (
	maxRequest = 8 << 10 // bytes of head and body
	maxFields  = 64
)

type verdict int

const (
	partial verdict = iota // more has to come
	foreign                // net/http reads it
	whole
)

// A head is the head of a request.
type head struct {
	*shape
	target string // of the request line
	query  string
	fields
}

// fields are those of a head, and what they say.
type fields struct {
	text   string // with the empty line at its end
	header http.Header
	host   string
	length int // of the body; -1: not given
	close  bool
}

// bytesOf returns the set of the bytes of a text.
func bytesOf(text string) (set [256]bool) {
	for _, c := range []byte(text) {
		set[c] = true
	}
	return set
}

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	inToken = bytesOf("!#$%&'*+-.^_`|~" + alphanumeric)
	inQuery = bytesOf("!$%&'()*+,-./:;=?@[]_~" + alphanumeric)
	inHost  = bytesOf("-.:[]_" + alphanumeric)
	inValue = func() (set [256]bool) {
		for c := range set {
			set[c] = c >= ' ' && c != 0x7f || c == '\t'
		}
		return set
	}()
)

func all(text string, set *[256]bool) bool {
	for i := range len(text) {
		if !set[text[i]] {
			return false
		}
	}
	return true
}

// shapeOf returns the shape of the request that in begins with.
func shapeOf(in []byte) (*shape, verdict) {
	for i := range shapes {
		s := &shapes[i]
		n := min(len(in), len(s.start))
		switch {
		case string(in[:n]) != s.start[:n]:
		case n == len(s.start):
			return s, whole
		default:
			return nil, partial
		}
	}
	return nil, foreign
}

// endOfHead looks for the end of a head, from the line on that begins at from. It returns
// the head's size, or where the last line begins.
func endOfHead(in []byte, from int) (at int, found verdict) {
	for {
		n := bytes.IndexByte(in[from:], '\n')
		switch {
		case n < 0:
			return from, partial
		case n == 0 || in[from+n-1] != '\r':
			return from, foreign // some programs end lines without \r
		case n == 1:
			return from + 2, whole
		}
		from += n + 1
	}
}

// parseHead reads a head that ends with an empty line. It reports false for all whose meaning
// is not beyond doubt, and for all that net/http treats in a special way.
func parseHead(s *shape, text string) (h head, ok bool) {
	h, rest, ok := parseLine(s, text)
	if ok {
		h.fields, ok = parseFields(rest)
	}
	return h, ok && h.bodyFits()
}

// parseLine reads the line of a request, and returns what follows it.
func parseLine(s *shape, text string) (h head, rest string, ok bool) {
	h = head{shape: s, target: s.path}
	rest = text[len(s.start):]
	if !s.query {
		return h, rest, true
	}
	line, rest, _ := strings.Cut(rest, "\r\n")
	query, proto := strings.CutSuffix(line, lineVersion)
	if !proto || query == "" || !all(query, &inQuery) {
		return head{}, "", false
	}
	// Keys are parts of it, which may outlive the head.
	h.target = strings.Clone(text[len(s.method)+1 : len(s.start)+len(query)])
	h.query = h.target[len(h.target)-len(query):]
	return h, rest, true
}

// parseFields reads fields that end with an empty line.
func parseFields(text string) (f fields, ok bool) {
	f = fields{text: text, length: -1, header: make(http.Header, 8)}
	// One array for the values of all fields, as in textproto.
	values := make([]string, 0, strings.Count(text, "\n"))
	for range maxFields {
		line, after, found := strings.Cut(text, "\r\n")
		text = after
		switch {
		case !found:
			return fields{}, false
		case line == "":
			return f, f.host != "" && text == ""
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if name == "" || len(name) == len(line) || !all(name, &inToken) || !all(value, &inValue) {
			return fields{}, false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if !f.field(name, value) {
			return fields{}, false
		}
		if name == "Host" {
			continue
		}
		if before := f.header[name]; before != nil {
			f.header[name] = append(before, value)
			continue
		}
		values = append(values, value)
		f.header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return fields{}, false
}

func (h *head) bodyFits() bool {
	if h.method == http.MethodGet {
		return h.length <= 0
	}
	return h.length >= 0
}

// field looks at a field that says how the request is read. It reports false if net/http has
// to read it.
func (f *fields) field(name, value string) bool {
	switch name {
	case "Host":
		if f.host != "" || !all(value, &inHost) {
			return false
		}
		f.host = value
		return value != ""
	case "Content-Length":
		return f.length < 0 && f.setLength(value)
	case "Connection":
		f.close = f.close || strings.EqualFold(value, "close")
		return f.header[name] == nil && (f.close || strings.EqualFold(value, "keep-alive"))
	case "Transfer-Encoding", "Trailer", "Expect", "Upgrade", "Pragma", "Http2-Settings":
		return false
	}
	return true
}

func (f *fields) setLength(digits string) bool {
	if digits == "" || len(digits) > 4 || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	f.length = 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
		f.length = 10*f.length + int(digits[i]-'0')
	}
	return true
}

// fill fills in a request as net/http does. The header is shared by all requests with the same
// fields.
func (h *head) fill(r *http.Request, u *url.URL) {
	u.Path, u.RawQuery = h.path, h.query
	r.Method, r.RequestURI, r.URL = h.method, h.target, u
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Header, r.Host, r.Close = h.header, h.host, h.close
	r.Body, r.ContentLength = http.NoBody, int64(max(h.length, 0))
}
