package meter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/admission"
)

// TestManyFields wants a body of many fields refused before each takes memory.
func TestManyFields(t *testing.T) {
	const size = 4 << 20
	fields := func(field string) string { return strings.Repeat(field, size/len(field)) }
	for name, body := range map[string]string{
		"fields without a name": "{" + strings.Repeat(`"":1,`, (32<<20)/len(`"":1,`)) + `"model":"m"}`,
		"different fields": func() string {
			var b strings.Builder
			for i := range size / len(`"00000000":1,`) {
				fmt.Fprintf(&b, `"%08d":1,`, i)
			}
			return "{" + b.String() + `"model":"m"}`
		}(),
		"a long name":              `{"` + strings.Repeat("a", size) + `":1}`,
		"fields of stream_options": `{"stream_options":{` + fields(`"":1,`) + `"a":1}}`,
		"fields of a message":      `{"model":"m","messages":[{` + fields(`"":1,`) + `"a":1}]}`,
		"messages":                 `{"model":"m","messages":[` + fields(`{},`) + `{}]}`,
		"parts":                    `{"model":"m","messages":[{"content":[` + fields(`{"type":"text"},`) + `{}]}]}`,
		"tools":                    `{"model":"m","tools":[` + fields(`{"":{}},`) + `{}]}`,
		"nesting":                  `{"model":"m","messages":[{"content":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + `}]}`,
	} {
		memory := &admission.Body{Text: []byte(body)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readRequest(chat, memory)
		runtime.ReadMemStats(&after)
		if refused := new(refusal); err != nil && !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		if (err == nil) != slices.Contains([]string{"fields of a message", "messages", "parts", "tools"}, name) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > size/4 {
			t.Errorf("%s: %d MiB were allocated", name, n>>20)
		}
	}
}

// TestFieldsAreCharged wants the fields of a request charged to the budget of memory, until
// the request is forgotten.
func TestFieldsAreCharged(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 900 {
		fmt.Fprintf(&b, `"f%d":1,`, i)
	}
	body := "{" + b.String() + chatBody[1:]
	for room, want := range map[int64]int{100_000: 503, 2_000_000: 200} {
		budget := admission.NewBudget(room)
		bench := newBench(t, testRules, reporting(9, 4), func(o *Options) { o.Budget = budget })
		if a := bench.post(chatPath, body); a.StatusCode != want {
			t.Errorf("%d bytes: %d %s", room, a.StatusCode, a.text)
		}
		if n := budget.Held(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	}
}

// seen is what a limit sees of a request, beside the length of its text.
type seen struct {
	Model            string
	Stream, Asked    bool
	Bounded          bool
	Zero             string
	Bound            int64
	Answers, Prompts int64
	Media            int
	Unbounded        bool
}

func seenOf(r *request) seen {
	return seen{r.model, r.stream, r.asked, r.bounded, r.zero, r.bound, r.answers, r.prompts, r.parts.media, r.parts.unbounded != ""}
}

// plainOf spells a JSON value without escapes that are not needed, without space, and with the
// fields of each object in order.
func plainOf(t *testing.T, body []byte) []byte {
	t.Helper()
	var value any
	from := json.NewDecoder(bytes.NewReader(body))
	from.UseNumber()
	if err := from.Decode(&value); err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	to := json.NewEncoder(&plain)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		t.Fatal(err)
	}
	return plain.Bytes()
}

// strangeOf spells the same value with every text escaped and space everywhere.
func strangeOf(body []byte) []byte {
	var strange []byte
	s := scanner{text: body}
	for s.i < len(body) {
		switch c := body[s.i]; c {
		case '"':
			text := string(s.string())
			strange = append(strange, '"')
			for _, r := range text {
				if r > 0xffff {
					strange = append(strange, string(r)...)
					continue
				}
				strange = fmt.Appendf(strange, "\\u%04x", r)
			}
			strange = append(strange, '"')
		case ' ', '\t', '\r', '\n':
			s.i++
		case '{', '}', '[', ']', ',', ':':
			strange = append(strange, '\n', c, '\t')
			s.i++
		default:
			strange = append(strange, c)
			s.i++
		}
	}
	return strange
}

// FuzzSpelling wants a request read as its plain spelling is, and as a strange one is, or
// refused by the name of what others could read otherwise.
func FuzzSpelling(f *testing.F) {
	for _, body := range bodies {
		f.Add(uint8(chat), []byte(body))
	}
	for _, body := range []string{
		streamBody, `{"model":"m","str\u0065am":true,"n":2}`, `{"model":"m","stream":1}`, `{"Model":"m"}`, `{"model":"m","max_tokens":0}`,
		`{"model":"m","stream_options":{"include_usage":true,"a":1}}`, `{"model":"m","best_of":3,"prompt":["a",[1,2]]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"ty\u0070e":"image","source":{"type":"base64","data":"AAAA"}},{"type":"text","type":"a"}]}]}`,
		`{"model":"m","input":[{"type":"item_reference"},{"id":"a"},{"type":"reasoning","encrypted_content":"a"},"a"],"tools":[{"type":"web_search"}]}`,
		`{"model":"m","system":[{"type":"text"}],"messages":[{"content":"data:a"}],"service_tier":"priority","modalities":["text"]}`,
	} {
		for e := chat; e < catalog; e++ {
			f.Add(uint8(e), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, e uint8, body []byte) {
		of := chat + endpoint(e)%(catalog-chat)
		read := func(body []byte) (*request, *refusal) {
			r, err := readRequest(of, &admission.Body{Text: body})
			refused := new(refusal)
			if err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
			if err != nil && (refused.status != 400 || refused.message == "") {
				t.Fatalf("%+v", refused)
			}
			return r, refused
		}
		r, refused := read(body)
		if r == nil {
			if !json.Valid(body) || !utf8.Valid(body) || bytes.Contains(body, []byte(`\ud`)) || bytes.Contains(body, []byte(`\uD`)) {
				return
			}
			if plain, _ := read(plainOf(t, body)); plain != nil && !strings.Contains(refused.message, `"`) {
				t.Errorf("%s: its plain spelling is read, and the refusal names nothing: %s", body, refused.message)
			}
			return
		}
		for _, spelt := range [][]byte{plainOf(t, body), strangeOf(body)} {
			again, refused := read(spelt)
			if again == nil {
				t.Errorf("%s is read, and %s is refused: %s", body, spelt, refused.message)
				continue
			}
			if diff := cmp.Diff(seenOf(r), seenOf(again)); diff != "" {
				t.Errorf("%s and %s (-first +second):\n%s", body, spelt, diff)
			}
		}
		if stated := r.edited(); !bytes.Equal(bytes.Join(stated, nil), body) {
			t.Errorf("%s becomes %s", body, stated)
		}
		if len(of.bounds()) > 0 {
			changed := bytes.Join(r.edited(r.bounding(7), r.reporting()), nil)
			again, refused := read(changed)
			if again == nil {
				t.Fatalf("%s becomes %s: %s", body, changed, refused.message)
			}
			if want := max(7, r.bound); !again.asked || !again.bounded || again.bound > want {
				t.Errorf("%s becomes %s: %+v", body, changed, seenOf(again))
			}
		}
	})
}
