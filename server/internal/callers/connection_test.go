package callers

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRecall: a token that was right on a connection is as good as on a new one, until a file
// changes.
func TestRecall(t *testing.T) {
	t.Parallel()
	secrets, file := secretsOf(t, newToken)
	callers, name := callersOf(t, fmt.Sprintf(edgeText, digestOf(oldToken)), nil)
	callers.options.Secrets = secrets
	var conn Connection
	want := func(when, user, token string, known bool) {
		t.Helper()
		for range 2 {
			who, got := callers.Authenticate(&Credentials{User: user, Token: token, Shown: true, Connection: &conn})
			if got != known || known && who.Name() != map[string]string{oldToken: "edge"}[token] {
				t.Errorf("%s: %s is %q, known %t", when, token, who.Name(), got)
			}
		}
	}
	change := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want("first", "", oldToken, true)
	if conn.last.Load() == nil {
		t.Fatal("nothing is remembered")
	}
	want("another caller", "", newToken, true)
	want("the first again", "", oldToken, true)
	want("another user", "web", oldToken, false)
	want("its user", "edge", oldToken, true)
	want("another token", "edge", strings.Repeat("x", len(oldToken)), false)
	want("back again", "", oldToken, true)
	change(name, fmt.Sprintf(edgeText, digestOf("one-more-token-0123456789")))
	callers.options.File.watched.reread()
	want("a file of callers without it", "", oldToken, false)
	want("a secret", "", newToken, true)
	change(file, oldToken+oldToken)
	secrets.watched.reread()
	want("a file of secrets without it", "", newToken, false)
	change(file, newToken)
	secrets.watched.reread()
	want("a file with it", "", newToken, true)
	for range MaxFailures {
		callers.Authenticate(&Credentials{Token: "wrong", Shown: true, Connection: &conn})
	}
	want("after too many failures", "", newToken, false)
}
