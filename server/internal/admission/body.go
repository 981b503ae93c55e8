package admission

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// A Body is the body of an HTTP request, charged to a budget from when it is read until
// it is closed. One that its connection holds is charged from when it is decoded.
type Body struct {
	Text   []byte
	budget *Budget
	hold   *Hold // nil: it has no bytes yet
}

// whole is a request's body that has arrived. Its memory is its connection's.
type whole interface{ Whole() []byte }

// ReadBody reads a request's body of at most the given size. The error is an
// [*http.MaxBytesError], [ErrFull], or that of the connection. Without an error the
// caller must close the body.
func (b *Budget) ReadBody(w http.ResponseWriter, r *http.Request, most int64) (Body, error) {
	if body, arrived := r.Body.(whole); arrived && r.ContentLength <= most {
		return Body{Text: body.Whole(), budget: b}, nil
	}
	share := b.Hold(func() {
		// A connection without deadlines is not waited for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	})
	text, err := readBody(w, r, most, share)
	if err == nil {
		share.Unfinished(0)
		return Body{text, b, share}, nil
	}
	share.Close()
	if share.Evicted() {
		err = ErrFull
	}
	return Body{}, err
}

// Take charges the body for being decoded. The error is [ErrFull].
func (b *Body) Take(o *Outline) error { return b.Grow(len(b.Text) + o.Objects*objectBytes) }

// Grow charges the body for so many more bytes, which reading it takes. The error is
// [ErrFull].
func (b *Body) Grow(bytes int) error {
	if b.hold == nil {
		b.hold = b.budget.Hold(nil) // which has no unfinished messages
	}
	if !b.hold.Take(int64(bytes)) {
		return ErrFull
	}
	return nil
}

// Close returns the bytes that the body holds.
func (b *Body) Close() { b.hold.Close() }

func readBody(w http.ResponseWriter, r *http.Request, most int64, share *Hold) ([]byte, error) {
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // rather than read it all
		linger(w, r)
		return nil, &http.MaxBytesError{Limit: most}
	}
	limited := http.MaxBytesReader(innermost(w), r.Body, most)
	size := r.ContentLength + 1 // the last byte finds the end
	if r.ContentLength < 0 {
		size = firstBytes
	}
	var body []byte
	for {
		if !share.Take(size - int64(cap(body))) {
			linger(w, r)
			return nil, ErrFull
		}
		if size > evictable {
			share.Unfinished(size)
		}
		body = append(make([]byte, 0, size), body...)
		for len(body) < cap(body) {
			n, err := limited.Read(body[len(body):cap(body)])
			body = body[:len(body)+n]
			if errors.Is(err, io.EOF) {
				return body, nil
			}
			if err != nil {
				return nil, err
			}
		}
		size = min(2*size, most+1)
	}
}

// linger makes net/http wait before it closes a connection at the client's request.
// Otherwise a client that is still sending could lose the answer, because the body is not
// read to its end. Reading past a limit of 0 bytes is the way to ask for that.
func linger(w http.ResponseWriter, r *http.Request) {
	if r.Close && r.Header.Get("Expect") == "" {
		_, _ = http.MaxBytesReader(innermost(w), r.Body, 0).Read(make([]byte, 1))
	}
}

// innermost returns the writer behind all wrappers: http.MaxBytesReader can only tell
// net/http's own that the limit was reached.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// firstBytes is where reading a body of unknown length starts.
const firstBytes = 4 << 10

// maxDepth is deeper than any request nests.
const maxDepth = 16

// An Outline counts the parts of a JSON body of descriptors with entries.
type Outline struct {
	// Descriptors is how many objects an array in the body's object has.
	Descriptors int
	// Entries is the most objects in an array of one descriptor, and Largest is the
	// index of that descriptor.
	Entries, Largest int
	// Objects is how many descriptors and entries there are in all.
	Objects int
	// Deep reports whether the body nests deeper than any valid request. Counting
	// stopped there.
	Deep bool
}

// OutlineOf counts the parts of a JSON body without decoding it. For a body that is not
// JSON the counts mean nothing.
func OutlineOf(body []byte) Outline {
	var o Outline
	depth, entries := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = endOfText(body, i)
		case '{', '[':
			depth++
			switch {
			case depth > maxDepth:
				o.Deep = true
				return o
			case depth == 3 && body[i] == '{':
				o.Descriptors++
				o.Objects++
				entries = 0
			case depth == 5 && body[i] == '{':
				o.Objects++
				if entries++; entries > o.Entries {
					o.Entries, o.Largest = entries, o.Descriptors-1
				}
			}
		case '}', ']':
			depth--
		}
	}
	return o
}

// endOfText returns where the text ends that begins at i.
func endOfText(body []byte, i int) int {
	for i++; i < len(body); i++ {
		n := bytes.IndexAny(body[i:], `"\`)
		if n < 0 {
			return len(body)
		}
		if i += n; body[i] == '"' {
			return i
		}
		i++ // what is escaped
	}
	return i
}

// objectBytes is about what decoding an object takes.
const objectBytes = 256
