package weir

import (
	"encoding/binary"
	"hash/fnv"
)

// IDError says why an act with an id was not done; nothing was charged. It wraps
// [ErrInvalid], and errors.Is finds it.
type IDError uint8

const (
	// ErrUnknownID: no granted take with this id is remembered.
	ErrUnknownID IDError = iota + 1
	// ErrIDReused: the id belongs to an act with other content.
	ErrIDReused
	// ErrSettled: the take was settled already, at another cost, or refunded.
	ErrSettled
	// ErrReleased: the take was released already.
	ErrReleased
	// ErrOverRefund: more is to be refunded than the take was granted.
	ErrOverRefund
)

var idErrors = [...]string{
	ErrUnknownID:  "weir: unknown id: no granted take with it is remembered",
	ErrIDReused:   "weir: id reused: it belongs to an act with other content",
	ErrSettled:    "weir: id settled: its take was settled or refunded already",
	ErrReleased:   "weir: id released: its take was released already",
	ErrOverRefund: "weir: refund above what the take was granted",
}

// Error says what is wrong with the id.
func (e IDError) Error() string {
	if int(e) < len(idErrors) && e > 0 {
		return idErrors[e]
	}
	return "weir: invalid id"
}

// Unwrap returns [ErrInvalid].
func (e IDError) Unwrap() error { return ErrInvalid }

// Fingerprints tell whether an act repeats another under the same id: whom names
// the keys that it touches, what everything else that it asks. Limits do not
// count, which may change between the two; an [Amend] has those of its take. For
// stores.
func (a *Act) Fingerprints() (whom, what uint64) {
	h := fnv.New64a()
	for i := range a.Charges {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(a.Charges[i].Key))))
		_, _ = h.Write([]byte(a.Charges[i].Key))
		_, _ = h.Write([]byte{byte(a.Charges[i].Limit.Algorithm)})
	}
	whom = h.Sum64()
	h.Reset()
	kind := a.Kind
	if kind == Amend {
		kind = Take
	}
	_, _ = h.Write([]byte{byte(kind), flag(a.Immediate)})
	numbers := binary.BigEndian.AppendUint64(nil, uint64(a.Hold))
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.MaxWait))
	for i := range a.Charges {
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.Charges[i].Cost))
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.Charges[i].UpTo))
	}
	_, _ = h.Write(numbers)
	return whom, h.Sum64()
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
