package callers

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

const (
	oldToken = "an-old-token-0123456789"
	newToken = "the-next-token-0123456789"
)

// secretsOf returns the secrets of a file with that text, and its name.
func secretsOf(t testing.TB, text string) (*Secrets, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := SecretsFile{Setting: "http token file", File: file, Least: MinSecret}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return known, file
}

// TestSecretsChange: a file that changes takes effect, a wrong one none.
func TestSecretsChange(t *testing.T) {
	t.Parallel()
	known, file := secretsOf(t, oldToken)
	for _, change := range []struct {
		text     string
		old, new bool
	}{
		{oldToken + "\n" + newToken, true, true},
		{newToken + "\n", false, true},
		{"short", false, true},
		{"", false, true},
		{oldToken, true, false},
	} {
		if err := os.WriteFile(file, []byte(change.text), 0o600); err != nil {
			t.Fatal(err)
		}
		known.watched.reread()
		if known.Has(oldToken) != change.old || known.Has(newToken) != change.new {
			t.Errorf("after %q: old %t, new %t", change.text, known.Has(oldToken), known.Has(newToken))
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if known.watched.reread(); !known.Has(oldToken) {
		t.Error("a file that is gone took the tokens with it")
	}
}

// FuzzTokenFile: a file's tokens are those on its lines, all of them or none, and errors
// never repeat them.
func FuzzTokenFile(f *testing.F) {
	f.Add([]byte("0123456789abcdef\n\n  fedcba9876543210\r\n"))
	f.Add([]byte("short\n"))
	f.Add([]byte("0123456789abcdef\x00\n\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			known, err := (&SecretsFile{File: "f", Least: MinSecret}).parse(text)
			if err != nil {
				for word := range strings.FieldsSeq(string(text)) {
					if len(word) >= MinSecret && strings.Contains(err.Error(), word) {
						t.Errorf("%q: %v", text, err)
					}
				}
				return
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" {
					if known[n] != sha256.Sum256([]byte(line)) {
						t.Errorf("%q: token %d is not %q", text, n, line)
					}
					n++
				}
			}
			if n != len(known) {
				t.Errorf("%q: %d tokens", text, len(known))
			}
		})
	})
}
