package app

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestReadinessKeepsDetails: rules that cannot be read are told by name to everybody,
// and what stands in which file to those alone who show a token.
func TestReadinessKeepsDetails(t *testing.T) {
	t.Parallel()
	rules := rulesFor(t, failureRules)
	app := start(t, Options{Config: rules, HTTPTokenFile: passwordFile(t, oldToken)})
	if err := os.WriteFile(rules, []byte("domain: shop\nwrong: here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app.Reload()
	for deadline := time.Now().Add(10 * time.Second); app.rules.err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the wrong rules were not noticed")
		}
	}
	d := newDescribed(t, app)
	for authorization, told := range map[string]bool{"": false, "Bearer " + newToken: false, "Bearer " + oldToken: true, basicOf("weir", oldToken): true} {
		d.header.Set("Authorization", authorization)
		got, text := d.call("GET", "/readyz", "")
		if got.StatusCode != http.StatusOK || !strings.Contains(text, `{"name":"rules","ok":false`) {
			t.Errorf("%q: %d %s", authorization, got.StatusCode, text)
		}
		if strings.Contains(text, "wrong") != told || strings.Contains(text, "rules.yaml") != told {
			t.Errorf("%q reads %s", authorization, text)
		}
	}
	if _, text := details(t, app); !strings.Contains(text, "rules.yaml") {
		t.Errorf("administrators read %s", text)
	}
}
