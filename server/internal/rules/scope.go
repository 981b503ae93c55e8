package rules

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlimit/weir/internal/algo"
)

// scope returns what the request's ID belongs to: the domain and the entries, whichever
// limits the rules have for them, and for each act of one kind what it asks for.
func (b *builder) scope() algo.Scope {
	if b.owner == "" {
		b.owner, b.asks = b.ownerText(), b.req.asks()
	}
	return algo.Scope{Owner: b.owner, Asks: b.asks}
}

// ownerText names the domain and the entries of a request, and the keys and names of its own
// limits. The lengths keep the texts apart; no descriptor has 255 entries.
func (b *builder) ownerText() string {
	text := appendText(make([]byte, 0, 256), b.req.Domain)
	for _, entries := range b.req.Descriptors {
		text = binary.AppendUvarint(text, uint64(len(entries)))
		for _, e := range entries {
			text = appendText(appendText(text, e.Key), e.Value)
		}
	}
	for i := range b.found {
		if m := &b.found[i]; m.call != nil && !m.rule.OnTrial {
			text = appendText(appendText(append(text, 0xff), m.call.Key), m.rule.all[0].Limit.Name)
		}
	}
	if len(text) > maxPlainBytes {
		text = appendDigest(nil, text)
	}
	return string(text)
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// asks says what a request asks for, besides what its acts say themselves.
func (r *Request) asks() string {
	text := fmt.Appendf(nil, "%d %d %q", r.Cost, r.UpTo, r.Budget)
	for _, meter := range slices.Sorted(maps.Keys(r.Costs)) {
		text = fmt.Appendf(text, " %q %d", meter, r.Costs[meter])
	}
	for i := range r.Calls {
		text = fmt.Appendf(text, " call %d", r.Calls[i].Cost)
	}
	for i := range r.Each {
		text = fmt.Appendf(text, " each %d", r.Each[i].Cost)
	}
	return string(text)
}
