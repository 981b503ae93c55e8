package admission_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/internal/admission"
)

func TestOutlineOf(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]admission.Outline{
		``:                        {},
		`{}`:                      {},
		`{"descriptors":[{},{}]}`: {Descriptors: 2, Objects: 2},
		`{"descriptors":[{"entries":[{"key":"{[\"{"},{}]},{}]}`:    {Descriptors: 2, Entries: 2, Objects: 4},
		`{"a":"\\","descriptors":[{},{"entries":[{}],"b":"\\\""}]`: {Descriptors: 2, Entries: 1, Largest: 1, Objects: 3},
		`{"a":"`:                    {},
		`{"a":"\`:                   {},
		`}}}}{"a":[{`:               {},
		strings.Repeat("[", 17):     {Deep: true},
		strings.Repeat("[", 100000): {Deep: true},
	} {
		if got := admission.OutlineOf([]byte(body)); got != want {
			t.Errorf("%.60s: got %+v, want %+v", body, got, want)
		}
	}
}

// FuzzOutlineOf: a body of JSON never has more than was counted.
func FuzzOutlineOf(f *testing.F) {
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"\"{\\"}]},{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		outline := admission.OutlineOf(body)
		var decoded struct {
			Descriptors []struct{ Entries []struct{} }
		}
		if json.Unmarshal(body, &decoded) != nil || outline.Deep {
			return
		}
		objects := 0
		for _, d := range decoded.Descriptors {
			if len(d.Entries) > outline.Entries {
				// Elements that are null are none.
				if n := bytes.Count(body, []byte("null")); len(d.Entries) > outline.Entries+n {
					t.Errorf("%d entries, %+v counted", len(d.Entries), outline)
				}
			}
			objects += len(d.Entries)
		}
		if n := bytes.Count(body, []byte("null")); len(decoded.Descriptors) > outline.Descriptors+n {
			t.Errorf("%d descriptors, %+v counted", len(decoded.Descriptors), outline)
		}
	})
}

// TestReadBody: what is read is charged, whether its length was told or not.
func TestReadBody(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		body   string
		length int64 // that is told; -1 for none
		most   int64
		room   int64
		want   error
	}{
		"told":          {long, int64(len(long)), 1 << 20, 1 << 20, nil},
		"not told":      {long, -1, 1 << 20, 1 << 20, nil},
		"empty":         {"", 0, 1 << 20, 1 << 20, nil},
		"as long as":    {long, -1, int64(len(long)), 1 << 20, nil},
		"too long":      {long, -1, int64(len(long)) - 1, 1 << 20, new(http.MaxBytesError)},
		"told too long": {"", 1 << 30, 1 << 20, 1 << 20, new(http.MaxBytesError)},
		"no room":       {long, -1, 1 << 20, 50 << 10, admission.ErrFull},
		"no room, told": {"", 500 << 10, 1 << 20, 50 << 10, admission.ErrFull},
		"cut short":     {"x", 2, 1 << 20, 1 << 20, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := admission.NewBudget(c.room)
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			if r.ContentLength = c.length; c.want == io.ErrUnexpectedEOF {
				r.Body = io.NopCloser(io.MultiReader(r.Body, failing{}))
			}
			body, err := budget.ReadBody(w, r, c.most)
			got := body.Text
			var tooLarge *http.MaxBytesError
			if !errors.Is(err, c.want) && (!errors.As(err, &tooLarge) || !errors.As(c.want, &tooLarge)) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if c.want == nil && (string(got) != c.body || budget.Held() < int64(len(got))) {
				t.Errorf("%d bytes, %d of them charged", len(got), budget.Held())
			}
			if body.Close(); budget.Held() != 0 {
				t.Errorf("%d bytes are held for nobody", budget.Held())
			}
		})
	}
}

// arrived is a body that its connection holds.
type arrived struct {
	io.ReadCloser
	text []byte
}

func (a arrived) Whole() []byte { return a.text }

// TestWholeBody: a body that its connection holds is not copied, and charged when it is decoded.
func TestWholeBody(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(1 << 20)
	text := []byte("{}")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = arrived{http.NoBody, text}, int64(len(text))
	body, err := budget.ReadBody(httptest.NewRecorder(), r, 2)
	if err != nil || &body.Text[0] != &text[0] || budget.Held() != 0 {
		t.Fatalf("read %q, %v; %d bytes are charged", body.Text, err, budget.Held())
	}
	if err := body.Take(&admission.Outline{Objects: 1}); err != nil || budget.Held() < int64(len(text)) {
		t.Errorf("decoding: %v; %d bytes are charged", err, budget.Held())
	}
	if body.Close(); budget.Held() != 0 {
		t.Errorf("%d bytes are held for nobody", budget.Held())
	}
	var tooLarge *http.MaxBytesError
	if _, err := budget.ReadBody(httptest.NewRecorder(), r, 1); !errors.As(err, &tooLarge) {
		t.Errorf("a body that is too large: %v", err)
	}
}

// failing is a connection that was cut.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// wrapped is a writer as middleware makes it.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestSendersReadTheAnswer: clients that close their connections and are still sending
// a body that is refused read the answer.
func TestSendersReadTheAnswer(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 8<<20)
	for name, c := range map[string]struct {
		most, room int64
		untold     bool // the length of the body
	}{
		"too long":           {100, 1 << 20, false},
		"too long, not told": {100, 1 << 20, true},
		"no room":            {16 << 20, 1 << 20, false},
	} {
		budget := admission.NewBudget(c.room)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w = wrapped{wrapped{w}}
			if _, err := budget.ReadBody(w, r, c.most); err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			}
		}))
		t.Cleanup(server.Close)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for range 50 {
			sent := io.Reader(strings.NewReader(body))
			if c.untold {
				sent = io.MultiReader(sent)
			}
			resp, err := client.Post(server.URL, "text/plain", sent)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if resp.Body.Close(); resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
		}
	}
}
