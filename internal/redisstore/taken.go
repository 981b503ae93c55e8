package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// taken are the charges of a take whose ID belongs to a scope, as its record names them. An
// act about the take that lists others is answered with these, and sent again for them.
type taken struct {
	layout  uint64 // a keyed hash of the keys, and of the groups and alternatives
	charges []takenCharge
}

type takenCharge struct {
	name       string // of the Redis key, without the prefix
	limit      *weir.Limit
	group, alt uint8
}

// maxMeter is the length up to which the meter of a limit is stored.
const maxMeter = 255

// errMoved marks an act whose take has other charges.
var errMoved = errors.New("the take has other charges")

// list sets what an act with a scope says about its charges: their hash and, for acts that
// may begin a record, the charges themselves.
func (i *identity) list(n keyer, a *weir.Act) {
	text := make([]byte, 0, 256)
	for j := range a.Charges {
		c := &a.Charges[j]
		k := stateKey(c)
		k.tag = n.tagOf(tagSource(c))
		from := len(text)
		text = append(text, 0, 0)
		text = n.append(text, &k)
		text = append(text[:from+2], text[from+2+len(n.prefix):]...)
		text[from], text[from+1] = byte((len(text)-from-2)>>8), byte(len(text)-from-2)
		text = append(text, c.Group, c.Alt)
	}
	i.layout = siphash.Hash(n.k0, n.k1, text)
	if a.Kind != acts.KindTake && a.Kind != acts.KindAmend && a.Kind != acts.KindWithdraw {
		return
	}
	for j := range a.Charges {
		limit := a.Charges[j].Limit
		form, meter := limit.String(), limit.Meter
		if len(meter) > maxMeter {
			meter = ""
		}
		text = append(append(text, byte(len(form))), form...)
		text = append(append16(text, len(meter)), meter...)
	}
	i.charges = append([]byte{byte(len(a.Charges))}, text...)
}

// taken reads the charges that a record names.
func (r *reader) taken() (*taken, error) {
	b := &reader{rest: r.text(int(r.number(2)))}
	t := &taken{charges: make([]takenCharge, max(0, b.number(1)))}
	for i := range t.charges {
		c := &t.charges[i]
		c.name = b.text(int(b.number(2)))
		c.group, c.alt = uint8(b.number(1)), uint8(b.number(1))
	}
	for i := range t.charges {
		limit, err := weir.ParseLimit(b.text(int(b.number(1))))
		if err != nil {
			return nil, fmt.Errorf("%w: the limit of a record: %w", weir.ErrBackend, err)
		}
		limit.Meter = b.text(int(b.number(2)))
		t.charges[i].limit = limit.MustCompile()
		if _, tagged := tagOfName(t.charges[i].name); !tagged {
			b.short = true
		}
	}
	high, low := r.number(4), r.number(4)
	t.layout = uint64(high)<<32 | uint64(low)
	if b.short || b.rest != "" || len(t.charges) == 0 {
		return nil, fmt.Errorf("%w: the charges of a record cannot be read", weir.ErrBackend)
	}
	return t, nil
}

// text takes so many bytes.
func (r *reader) text(bytes int) string {
	if bytes < 0 || len(r.rest) < bytes {
		r.rest, r.short = "", true
		return ""
	}
	text := r.rest[:bytes]
	r.rest = r.rest[bytes:]
	return text
}

// tagOfName returns the hash tag of a key's name without the prefix.
func tagOfName(name string) (tag uint32, tagged bool) {
	if len(name) < tagLength+2 || name[0] != '{' || name[tagLength+1] != '}' {
		return 0, false
	}
	for i := tagLength; i > 0; i-- {
		letter := strings.IndexByte(tagLetters, name[i])
		if letter < 0 {
			return 0, false
		}
		tag = tag<<6 | uint32(letter)
	}
	return tag, true
}

// about returns the act that does to the charges of a take what a does to its own, whose keys
// are names of Redis keys, and whether a charge of the one is a charge of the other.
func (t *taken) about(n keyer, a *weir.Act) (b *weir.Act, same func(own, taken int) bool) {
	names := make([]string, len(a.Charges))
	for i := range a.Charges {
		names[i] = n.name(&a.Charges[i])[len(n.prefix):]
	}
	same = func(own, taken int) bool { return names[own] == t.charges[taken].name }
	charges := make([]weir.Charge, len(t.charges))
	for i, c := range t.charges {
		charges[i] = weir.Charge{Key: c.name, Limit: c.limit, Group: c.group, Alt: c.alt}
	}
	return acts.Follow(a, charges, same), same
}

// errVanished is the error of an act whose take was replaced by another one while it was
// sent.
func errVanished(a *weir.Act) error { return fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrUnknownID) }
