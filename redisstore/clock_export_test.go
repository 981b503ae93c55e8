package redisstore

import "github.com/weirlimit/weir"

// PackedAt returns the script call by which a client whose clock stands at now, in
// µs, would have the acts decided.
func PackedAt(now int64, acts ...*weir.Act) ([]string, []any) {
	b := newBatch(newKeyer(defaultPrefix, ""), now)
	b.fill(acts)
	return b.keys, b.args()
}
