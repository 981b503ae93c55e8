package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":             "",
		"Ann-1.2:3@x":  "Ann-1.2:3@x",
		"/login":       "/login",
		"a=b,c;d#e*%/": "a%3Db%2Cc%3Bd%23e%2A%25/",
		"{x}\x00\n ":   "%7Bx%7D%00%0A%20",
		"schön 世界":     "schön%20世界",
		"\xff\u200b":   "%FF%E2%80%8B",
	} {
		if got := string(appendEscaped(nil, text, "/")); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	long := "d/" + strings.Repeat("x", 64<<10)
	a, b := bounded(long, ";minute", weir.MaxKeyBytes), bounded(long, ";hour", weir.MaxKeyBytes)
	if a == b || len(a) != len("sha256:")+64 || strings.Contains(a, "/") {
		t.Errorf("%s, %s", a, b)
	}
	if got := bounded("d/a=b", ";minute", weir.MaxKeyBytes); got != "d/a=b;minute" {
		t.Error(got)
	}
}

// TestParseKey: the entries of a request can be read from its key, so that different entries
// have different keys.
func TestParseKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		texts := rapid.OneOf(rapid.String(), bytes, rapid.StringOf(rapid.SampledFrom([]rune("a=,;/%#*{}…"))))
		domain := texts.Draw(t, "domain")
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
			return Entry{texts.Draw(t, "key"), texts.Draw(t, "value")}
		}), 1, 4).Draw(t, "entries")
		key := append(appendEscaped(nil, domain, ""), '/')
		for i, e := range entries {
			if i > 0 {
				key = append(key, ',')
			}
			key = appendEntry(key, e)
		}
		gotDomain, gotEntries, ok := ParseKey(string(key) + ";user#2")
		if !ok || gotDomain != domain || !slices.Equal(gotEntries, entries) {
			t.Fatalf("%q: %q %q %v", key, gotDomain, gotEntries, ok)
		}
	})
	for _, key := range []string{"", "sha256:00", "shop/user=42", "shop;user", "shop/user;user", "shop/user=%4;user", "cl.throttle;x"} {
		if domain, entries, ok := ParseKey(key); ok {
			t.Errorf("%q is %q %q", key, domain, entries)
		}
	}
}
