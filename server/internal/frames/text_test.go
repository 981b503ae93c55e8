package frames

import (
	"bytes"
	"testing"
)

// TestText: the text of a message stays as it is, whatever the memory of a small one is used
// for afterwards; that of a large one is no copy.
func TestText(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, maxKept, maxKept + 1, 100_000} {
		c := &Call{message: bytes.Repeat([]byte("x"), size)}
		text := c.Text()
		reused := keep(c.message) != nil
		c.message[0] = 'y'
		if copied := text[0] == 'x'; len(text) != size || reused && !copied || size > 2*maxKept && copied {
			t.Errorf("%d bytes: %d in the text, copied %v, memory used again %v", size, len(text), copied, reused)
		}
	}
}
