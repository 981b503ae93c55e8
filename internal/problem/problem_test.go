package problem

import "testing"

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
