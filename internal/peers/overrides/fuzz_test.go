package overrides

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fuzztest"
)

// FuzzDecode: what stands in Redis is an override that comes back as it was written,
// or is passed over.
func FuzzDecode(f *testing.F) {
	f.Add("k", `{"limit":"100/min burst 20","until_ms":1}`)
	f.Add("k", `{"limit":"","until_ms":-9223372036854775808}`)
	f.Add("", `{"limit":"9/day time_zone Europe/Berlin fixed_window","until_ms":1e3}`)
	f.Fuzz(func(t *testing.T, key, text string) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			o, err := decode(key, text)
			if err != nil {
				return
			}
			again, err := decode(key, encode(o))
			if err != nil || again.Key != key || !again.Until.Equal(o.Until) || (again.Limit == nil) != (o.Limit == nil) {
				t.Fatalf("%s: %+v came back as %+v, %v", text, o, again, err)
			}
			// What is compiled follows from the rest.
			if diff := cmp.Diff(o.Limit, again.Limit, cmpopts.IgnoreUnexported(weir.Limit{})); diff != "" {
				t.Fatalf("%s: came back otherwise: %s", text, diff)
			}
		})
	})
}
