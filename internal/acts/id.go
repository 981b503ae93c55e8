package acts

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	// IDLife is the shortest time for which the ID of a granted take is remembered.
	IDLife = 10 * time.Minute
	// RefusedIDLife is the time for which the ID of a refused take is remembered. A later
	// repeat is decided again.
	RefusedIDLife = 10 * time.Second
	// lateLife is longer than a take is on its way to a store.
	lateLife = time.Minute
	// EarlyEndLife is how long the end of a take that is not known is remembered.
	EarlyEndLife = 10 * time.Second
	// MaxAttempts is how many attempts of a take may stand, and how many withdrawn ones are
	// remembered.
	MaxAttempts = 32
)

// AppendOwner appends the owner of an act's ID. The same ID of another owner is another ID.
// Stores hash the text under a secret.
func AppendOwner(p []byte, a *weir.Act) []byte {
	owner := a.Scope.Owner
	return append(binary.BigEndian.AppendUint64(p, uint64(len(owner))), owner...)
}

// Content returns a fingerprint of everything that an act asks of its keys. Two acts with
// the same ID and content are repeats. Limits are not part of it, because they may change
// between the two; if the Scope says what the act asks for, neither are the charges. A
// [KindAmend] and a [KindWithdraw] have the content of their take.
func Content(a *weir.Act) uint64 {
	kind := a.Kind
	if kind == KindAmend || kind == KindWithdraw {
		kind = KindTake
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(kind), flag(a.Immediate)})
	numbers := binary.BigEndian.AppendUint64(nil, uint64(a.Hold))
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(a.MaxWait))
	if a.Scope.Asks != "" {
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

// Lives returns for how long a store remembers an act's ID if it grants the act, and if it
// refuses it. 0 means not at all.
func Lives(a *weir.Act) (granted, refused time.Duration) {
	granted, refused = max(IDLife, a.Hold), RefusedIDLife
	if a.NewID || a.ForgetRefused {
		refused = 0
	}
	for i := range a.Charges {
		if l := a.Charges[i].Limit; algo.TraitsOf(l.Algorithm).HoldsSlots {
			// A slot may be released at any time: the repeat may be granted.
			granted, refused = max(granted, l.Period), 0
		}
	}
	if a.Kind == KindAmend || a.Kind == KindWithdraw {
		refused = lateLife
	}
	return granted, refused
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
