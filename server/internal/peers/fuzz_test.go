package peers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// FuzzDecodeOverride: a value in Redis either cannot be decoded or comes back as it was
// encoded.
func FuzzDecodeOverride(f *testing.F) {
	f.Add("k", `{"limit":"100/min burst 20","until_ms":1}`)
	f.Add("k", `{"limit":"","until_ms":-9223372036854775808}`)
	f.Add("", `{"limit":"9/day time_zone Europe/Berlin fixed_window","until_ms":1e3}`)
	f.Add("k\x00I", `{"limit":"","until_ms":1,"raise":50,"id":"I","note":"demo"}`)
	f.Fuzz(func(t *testing.T, key, text string) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			o, err := decodeOverride(key, text)
			if err != nil {
				return
			}
			again, err := decodeOverride(key, encodeOverride(o))
			if err != nil || again.Name() != key || !again.Until.Equal(o.Until) || (again.Limit == nil) != (o.Limit == nil) {
				t.Fatalf("%s: %+v came back as %+v, %v", text, o, again, err)
			}
			if diff := cmp.Diff(o.Raise, again.Raise); diff != "" {
				t.Fatalf("%s: came back changed: %s", text, diff)
			}
			if diff := cmp.Diff(o.Limit, again.Limit, cmpopts.IgnoreUnexported(weir.Limit{})); diff != "" {
				t.Fatalf("%s: came back changed: %s", text, diff)
			}
		})
	})
}
