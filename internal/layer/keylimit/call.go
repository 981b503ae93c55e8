package keylimit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/weirlimit/weir"
)

// A call is what one Take has changed in its acts.
type call struct {
	moved     []moved
	renamed   []renamed
	elsewhere []*weir.Act // acts whose IDs may be known under other keys
}

// moved is a charge under another key.
type moved struct {
	charge       *weir.Charge
	key, hashTag string
}

// renamed is an act with another ID.
type renamed struct {
	act    *weir.Act
	id     string
	forget bool
}

// move puts a charge under the overflow key, which has a hash slot of its own, unless the
// charge has an alternative: alternatives share a hash slot.
func (c *call) move(a *weir.Act, i int, overflow string) {
	charge := &a.Charges[i]
	c.moved = append(c.moved, moved{charge, charge.Key, charge.HashTag})
	charge.Key = overflow
	if !a.Optional(i) {
		charge.HashTag = ""
	}
}

// rename gives an act an ID made of its own and the keys that were moved: under the
// overflow key, one ID used with two keys must stay two takes. A refusal of the act leaves
// no ID in the store: there may be any number of them.
func (c *call) rename(a *weir.Act, moved []moved) {
	if len(moved) == 0 || a.ID == "" || len(a.ID) > weir.MaxIDBytes {
		return
	}
	c.renamed = append(c.renamed, renamed{a, a.ID, a.ForgetRefused})
	hash := sha256.New()
	write := func(text string) {
		// The lengths keep the texts apart. A hash returns no errors.
		_ = binary.Write(hash, binary.BigEndian, uint64(len(text)))
		_, _ = hash.Write([]byte(text))
	}
	write(a.ID)
	for _, m := range moved {
		write(m.key)
	}
	a.ForgetRefused = true
	a.ID = "overflow:" + hex.EncodeToString(hash.Sum(nil))
}

// restore undoes the changes.
func (c *call) restore() {
	for _, m := range c.moved {
		m.charge.Key, m.charge.HashTag = m.key, m.hashTag
	}
	for _, r := range c.renamed {
		r.act.ID, r.act.ForgetRefused = r.id, r.forget
	}
	c.moved, c.renamed = nil, nil
}

// tryElsewhere repeats an act whose ID is unknown, with all of its keys under their
// Overflow and then with none.
func (l *Layer) tryElsewhere(ctx context.Context, a *weir.Act) {
	for _, overflowed := range []bool{true, false} {
		if !errors.Is(a.Err, weir.ErrUnknownID) {
			return
		}
		var c call
		for i := range a.Charges {
			if b := l.budgetOf(&a.Charges[i]); overflowed && b.MaxKeys > 0 {
				c.move(a, i, b.Overflow)
			}
		}
		c.rename(a, slices.Clone(c.moved))
		l.next.Take(ctx, []*weir.Act{a})
		c.restore()
	}
}
