package rules

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// unescape is the inverse of appendEscaped; that there is one makes it injective.
func unescape(t *rapid.T, text []byte) string {
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out = append(out, text[i])
			continue
		}
		b, err := hex.DecodeString(string(text[i+1 : i+3]))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
		i += 2
	}
	return string(out)
}

func TestEscapeHasAnInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "text"))
		kept := rapid.SampledFrom([]string{"", "/", "/*"}).Draw(t, "kept")
		escaped := appendEscaped([]byte("before"), text, kept)[len("before"):]
		for _, separator := range separators {
			if separator != '%' && !strings.ContainsRune(kept, separator) && bytes.ContainsRune(escaped, separator) {
				t.Fatalf("%q holds %q", escaped, separator)
			}
		}
		if got := unescape(t, escaped); got != text {
			t.Fatalf("%q came back as %q by way of %q", text, got, escaped)
		}
	})
}

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

// TestParseKey: what a request charges leads back to what it named.
func TestParseKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a=,;/%#*{}…"))))
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
