package redisengine

import (
	"fmt"

	"github.com/weirlimit/weir"
)

// PackedAt returns the script call by which a client whose clock stands at now, in
// µs, would have the acts decided.
func PackedAt(now int64, acts ...*weir.Act) string {
	b := newBatch(newKeyer(defaultPrefix, ""), now)
	b.fill(acts)
	b.pack(nil)
	text := fmt.Sprintf("%v %q", b.plain, b.packet)
	for i := range b.keys.all {
		text += fmt.Sprintf(" %q", b.keys.all[i].name)
	}
	for i := range b.rules {
		text += fmt.Sprint(" ", b.rules[i].ttl)
	}
	return text
}
