package instances

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/internal/fuzztest"
	"github.com/weirlimit/weir/internal/peers"
)

// FuzzHear: whatever is said on the topic, there is at least one instance, and there
// are no more than a bound.
func FuzzHear(f *testing.F) {
	f.Add([]byte("one\ntwo\n-one\n\n-\n--"))
	f.Add(bytes.Repeat([]byte("x"), 200))
	f.Fuzz(func(t *testing.T, words []byte) {
		c := New(Options{Bus: new(peers.Local)})
		fuzztest.Within(t, fuzztest.MostBytes, 4*len(words), func() {
			for word := range bytes.SplitSeq(words, []byte("\n")) {
				c.hear(string(word))
				if n := c.Count(); n < 1 || n > maxInstances {
					t.Fatalf("%d instances", n)
				}
			}
		})
	})
}
