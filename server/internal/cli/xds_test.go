package cli

import (
	"slices"
	"testing"
)

// TestArguments: Envoy Gateway starts /bin/ratelimit, and some pass it an argument that
// means nothing.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ process, want []string }{
		{nil, nil},
		{[]string{"/usr/bin/weir"}, []string{}},
		{[]string{"weir", "check", "rules.yaml"}, []string{"check", "rules.yaml"}},
		{[]string{"/bin/ratelimit"}, []string{"serve"}},
		{[]string{"/bin/ratelimit", "--stray", "argument"}, []string{"serve"}},
	} {
		if got := Arguments(c.process); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.process, got, c.want)
		}
	}
}
