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
	moved    []moved
	renamed  []renamed
	doubtful []*weir.Act // whose ids may be known elsewhere
}

// moved is a charge under another key.
type moved struct {
	charge    *weir.Charge
	key, slot string
}

// renamed is an act with another id.
type renamed struct {
	act    *weir.Act
	id     string
	forget bool
}

// move puts a charge under the overflow key, which has a slot of its own.
func (c *call) move(a *weir.Act, i int, overflow string) {
	charge := &a.Charges[i]
	c.moved = append(c.moved, moved{charge, charge.Key, charge.HashTag})
	charge.Key, charge.HashTag = overflow, ""
}

// rename gives an act an id that says which keys it is about: the ids of several
// keys meet under the overflow key, and who gives two of them one id would pay once.
// If the act is refused, the id leaves no trace: there may be any number of them.
func (c *call) rename(a *weir.Act, moved []moved) {
	if len(moved) == 0 || a.ID == "" || len(a.ID) > weir.MaxIDBytes {
		return
	}
	c.renamed = append(c.renamed, renamed{a, a.ID, a.ForgetRefused})
	hash := sha256.New()
	write := func(text string) {
		// Lengths keep texts apart. A hash has no errors.
		_ = binary.Write(hash, binary.BigEndian, uint64(len(text)))
		_, _ = hash.Write([]byte(text))
	}
	write(a.ID)
	for _, m := range moved {
		write(m.key)
	}
	a.ForgetRefused = true
	a.ID = "distinct:" + hex.EncodeToString(hash.Sum(nil))
}

// restore makes the acts what they were.
func (c *call) restore() {
	for _, m := range c.moved {
		m.charge.Key, m.charge.HashTag = m.key, m.slot
	}
	for _, r := range c.renamed {
		r.act.ID, r.act.ForgetRefused = r.id, r.forget
	}
	c.moved, c.renamed = nil, nil
}

// elsewhere asks about an id that is not known where the act's keys are now.
func (t *Taker) elsewhere(ctx context.Context, a *weir.Act) {
	for _, overflowed := range []bool{true, false} {
		if !errors.Is(a.Err, weir.ErrUnknownID) {
			return
		}
		var c call
		for i := range a.Charges {
			if b := t.budgetOf(&a.Charges[i]); overflowed && b.MaxKeys > 0 {
				c.move(a, i, b.Overflow)
			}
		}
		c.rename(a, slices.Clone(c.moved))
		t.next.Take(ctx, []*weir.Act{a})
		c.restore()
	}
}
