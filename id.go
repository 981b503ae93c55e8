package weir

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"
)

// An IDError says why an act with an ID failed. Nothing was charged. It wraps
// [ErrInvalid]; compare it with errors.Is.
type IDError uint8

const (
	// ErrUnknownID: no granted take with this ID is remembered.
	ErrUnknownID IDError = iota + 1
	// ErrIDReused: the ID belongs to an act of the same caller with other content.
	ErrIDReused
	// ErrSettled: the take was settled already, at another cost, or refunded.
	ErrSettled
	// ErrReleased: the take was released already.
	ErrReleased
	// ErrOverRefund: the refund is larger than the grant of the take.
	ErrOverRefund
)

var idErrors = [...]string{
	ErrUnknownID:  "unknown id: no granted take with it is remembered",
	ErrIDReused:   "id reused: it belongs to an act with other content",
	ErrSettled:    "id settled: its take was settled or refunded already",
	ErrReleased:   "id released: its take was released already",
	ErrOverRefund: "refund above what the take was granted",
}

// Error says what is wrong with the ID. Errors of acts wrap it and begin with "weir: ".
func (e IDError) Error() string {
	if int(e) < len(idErrors) && e > 0 {
		return idErrors[e]
	}
	return "invalid id"
}

// Unwrap returns [ErrInvalid].
func (e IDError) Unwrap() error { return ErrInvalid }

// AppendOwner appends the text that an ID belongs to: the owner of the act's [Scope] or,
// without one, the keys of the act with their algorithms. The same ID under another text is
// another ID. For stores, which hash the text under a secret.
func (a *Act) AppendOwner(p []byte) []byte {
	if owner := a.Scope.Owner; owner != "" {
		// No key is as long.
		p = binary.BigEndian.AppendUint64(p, math.MaxUint64)
		return append(binary.BigEndian.AppendUint64(p, uint64(len(owner))), owner...)
	}
	for i := range a.Charges {
		c := &a.Charges[i]
		p = binary.BigEndian.AppendUint64(p, uint64(len(c.Key)))
		p = append(append(p, c.Key...), byte(c.Limit.Algorithm))
	}
	return p
}

// Content returns a fingerprint of everything that the act asks of its keys. Two acts with
// the same ID and content are repeats. Limits are not part of it, because they may change
// between the two; with a [Scope], neither are the charges. A [KindAmend] has the content of
// its take. For stores.
func (a *Act) Content() uint64 {
	kind := a.Kind
	if kind == KindAmend {
		kind = KindTake
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(kind), flag(a.Immediate)})
	numbers := binary.BigEndian.AppendUint64(nil, uint64(a.Hold))
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.MaxWait))
	if a.Scope.Owner != "" {
		_, _ = h.Write(append(numbers, a.Scope.Asks...))
		return h.Sum64()
	}
	for i := range a.Charges {
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.Charges[i].Cost))
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.Charges[i].UpTo))
	}
	_, _ = h.Write(numbers)
	if a.Alternatives() {
		for i := range a.Charges {
			_, _ = h.Write([]byte{a.Charges[i].Group, a.Charges[i].Alt})
		}
	}
	return h.Sum64()
}

// Lives returns for how long a store remembers the act's ID if it grants the act,
// and if it refuses it. 0 means not at all. For stores.
func (a *Act) Lives() (granted, refused time.Duration) {
	granted, refused = max(IDLife, a.Hold), RefusedIDLife
	if a.NewID || a.ForgetRefused {
		refused = 0
	}
	for i := range a.Charges {
		if l := a.Charges[i].Limit; l.Algorithm.Traits().HoldsSlots {
			// A slot may be released at any time: the repeat may be granted.
			granted, refused = max(granted, l.Period), 0
		}
	}
	if a.Kind == KindAmend {
		refused = lateLife
	}
	return granted, refused
}

// lateLife is longer than a take is on its way to a store.
const lateLife = time.Minute

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
