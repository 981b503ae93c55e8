package denials

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/fuzztest"
)

// FuzzDecode: any message is keys, the same ones once they are sent on, or is known to
// be none.
func FuzzDecode(f *testing.F) {
	f.Add(encode(nil, []string{"a", "", "longer"}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{5, 'a'})
	f.Fuzz(func(t *testing.T, message []byte) {
		fuzztest.Within(t, fuzztest.MostBytes, len(message), func() {
			keys, ok := decode(message)
			if !ok {
				return
			}
			if again, ok := decode(encode(nil, keys)); !ok || !slices.Equal(keys, again) {
				t.Fatalf("%q is %q, and then %q", message, keys, again)
			}
		})
	})
}
