package pages

import (
	"slices"
	"testing"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, language, text string
		want                 []string
	}{
		{"shell", "sh", "a b   # why\n\n# nothing\nc 'd' \\\n    --e \\\n  f\n", []string{"a b", "c 'd' --e f"}},
		{"console", "console", "$ a\nsaid\n$ b \\\n  --c\n# said\n", []string{"a", "b --c"}},
		{"hash in a word", "sh", "a '#b' c#d\n", []string{"a '#b' c#d"}},
	} {
		if got := (Block{Language: tc.language, Text: tc.text}).Commands(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
