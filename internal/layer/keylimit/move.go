package keylimit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// A move is an act that is passed to the next Taker. The caller's act is never changed:
// the first charge that is moved makes a copy, which shares nothing with it but the
// decisions.
type move struct {
	act   *weir.Act
	own   []string // the keys of the charges that were moved
	moved []bool   // which ones those are
}

// charge puts a charge under the overflow key, which has a hash slot of its own.
func (m *move) charge(i int, overflow string) {
	if m.own == nil {
		moved := *m.act
		moved.Charges = slices.Clone(moved.Charges)
		m.act, m.moved = &moved, make([]bool, len(moved.Charges))
	}
	c := &m.act.Charges[i]
	m.own, m.moved[i] = append(m.own, c.Key), true
	c.Key, c.HashTag = overflow, ""
}

// end completes the act once its charges were moved.
func (m *move) end() {
	if m.own == nil {
		return
	}
	for i := 0; i < len(m.act.Charges); {
		end := acts.GroupEnd(m.act, i)
		if acts.AltEnd(m.act, i) < end {
			m.gather(i, end)
		}
		i = end
	}
	m.rename()
}

// gather puts the charges of a group with alternatives into one hash slot again: that of the
// states that were not moved, or else of the last overflow key. The last alternative is most
// often a budget, which other rules charge there, too.
func (m *move) gather(from, end int) {
	tag := ""
	for i := from; i < end; i++ {
		c := &m.act.Charges[i]
		if m.moved[i] {
			tag = c.Key
		} else if hasState(c) {
			tag = cmp.Or(c.HashTag, c.Key)
			break
		}
	}
	for i := from; tag != "" && i < end; i++ {
		m.act.Charges[i].HashTag = tag
	}
}

// rename gives an act an ID made of its own and the keys that were moved: under the
// overflow key, one ID used with two keys must stay two takes, as it does by itself if it
// belongs to a scope. A refusal of the act leaves no ID in the store: there may be any number
// of them.
func (m *move) rename() {
	if m.act.ID == "" || len(m.act.ID) > weir.MaxIDBytes {
		return
	}
	if m.act.ForgetRefused = true; m.act.Scope.Owner != "" {
		return
	}
	hash := sha256.New()
	for _, text := range append([]string{m.act.ID}, m.own...) {
		// The lengths keep the texts apart. A hash returns no errors.
		_ = binary.Write(hash, binary.BigEndian, uint64(len(text)))
		_, _ = hash.Write([]byte(text))
	}
	m.act.ID = "overflow:" + hex.EncodeToString(hash.Sum(nil))
}

// tryElsewhere repeats an act whose ID is unknown, with all of its keys under their
// Overflow and then with none, except as it was tried already: with tried under theirs. Another
// instance may have found room for the keys, or none, whatever this one has.
func (l *Layer) tryElsewhere(ctx context.Context, a *weir.Act, tried []bool) {
	for _, overflowed := range []bool{true, false} {
		if !errors.Is(a.Err, weir.ErrUnknownID) {
			return
		}
		m := move{act: a}
		for i := range a.Charges {
			if b := l.budgetOf(&a.Charges[i]); overflowed && b.MaxKeys > 0 {
				m.charge(i, b.Overflow)
			}
		}
		if slices.Equal(m.moved, tried) {
			continue
		}
		m.end()
		l.next.Take(ctx, []*weir.Act{m.act})
		a.Err = m.act.Err
	}
}
