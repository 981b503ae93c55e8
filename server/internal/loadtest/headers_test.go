package loadtest

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// Any sequence of blocks and of table sizes decodes to the fields that were added.
func TestHeaderWriterAgreesWithADecoder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newHeaderWriter()
		decoder := hpack.NewDecoder(tableCapacity, nil)
		var want []hpack.HeaderField
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}} {
			w.add(f[0], f[1], false)
			want = append(want, hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		text := rapid.StringMatching(`[ -~]{1,60}`)
		for range rapid.IntRange(0, 8).Draw(t, "fields") {
			f := hpack.HeaderField{
				Name: rapid.StringMatching(`[a-z-]{1,20}`).Draw(t, "name"), Value: text.Draw(t, "value"),
				Sensitive: rapid.Bool().Draw(t, "sensitive"),
			}
			w.add(f.Name, f.Value, f.Sensitive)
			want = append(want, f)
		}
		varies := rapid.Bool().Draw(t, "varies")
		if varies {
			w.add("last", "", false)
		}
		for range rapid.IntRange(1, 200).Draw(t, "blocks") {
			if rapid.IntRange(0, 20).Draw(t, "resize") == 0 {
				n := rapid.Uint32Range(0, 5000).Draw(t, "capacity")
				decoder.SetAllowedMaxDynamicTableSize(n)
				w.limit(n)
			}
			last, fields := "", want
			if varies {
				last = strings.Repeat("x", rapid.IntRange(1, 300).Draw(t, "length"))
				fields = append(slices.Clip(want), hpack.HeaderField{Name: "last", Value: last})
			}
			got, err := decoder.DecodeFull(w.block(last))
			if err != nil || !slices.Equal(got, fields) {
				t.Fatalf("got %v, %v; want %v", got, err, fields)
			}
		}
	})
}
