package problem

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// The documents are those that encoding/json writes.
func TestAppendJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,20}`), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		p := &Document{
			Type: text.Draw(t, "type"), Title: text.Draw(t, "title"), Status: rapid.IntRange(100, 599).Draw(t, "status"),
			Detail: text.Draw(t, "detail"), Code: text.Draw(t, "code"), Field: text.Draw(t, "field"),
			Violated: rapid.SliceOfN(text, 0, 3).Draw(t, "violated"),
		}
		want, err := json.Marshal(p)
		if got := p.appendJSON(nil); err != nil || string(got) != string(want) {
			t.Fatalf("got %s, want %s, %v", got, want, err)
		}
	})
}

func TestAcceptsJSON(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"*/*":                                true,
		"application/problem+json":           true,
		"application/json":                   true,
		"text/html, application/*;q=0.2":     true,
		"text/html,*/*;q=0.8":                true,
		"text/html":                          false,
		"text/html, application/json;q=0":    false,
		"image/png, application/xhtml+xml":   false,
		"; nonsense, application/json;q=0.1": true,
	} {
		if got := acceptsJSON([]string{accept}); got != want {
			t.Errorf("%q: got %t, want %t", accept, got, want)
		}
	}
	if !acceptsJSON(nil) {
		t.Error("no Accept: got false, want true")
	}
}
