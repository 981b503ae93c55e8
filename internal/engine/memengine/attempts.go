package memengine

import (
	"slices"

	"github.com/weirlimit/weir/internal/acts"
)

// Attempts are the calls of a take with an ID that arrived. Each has a number. An attempt whose
// caller got an error is withdrawn. Once none stands, the take holds nothing.
type attempts struct {
	standing  []uint64
	withdrawn []uint64 // they charge nothing if they arrive later
	firm      bool     // a caller knows the answer for certain: the take is never withdrawn
}

const attemptBytes = 8

func (t *attempts) bytes() int64 { return attemptBytes * int64(cap(t.standing)+cap(t.withdrawn)) }

// add notes an attempt. It returns false, and notes nothing, if too many stand.
func (t *attempts) add(number uint64) bool {
	switch {
	case t.firm || slices.Contains(t.standing, number):
	case number == 0:
		t.firm, t.standing = true, nil
	case len(t.standing) >= acts.MaxAttempts:
		return false
	default:
		t.standing = append(t.standing, number)
	}
	return true
}

// wasWithdrawn reports whether an attempt was withdrawn.
func (t *attempts) wasWithdrawn(number uint64) bool {
	return number != 0 && slices.Contains(t.withdrawn, number)
}

// withdraw withdraws an attempt, and reports whether none is left.
func (t *attempts) withdraw(number uint64) (none bool) {
	t.standing = slices.DeleteFunc(t.standing, func(n uint64) bool { return n == number })
	if !slices.Contains(t.withdrawn, number) {
		if t.withdrawn = append(t.withdrawn, number); len(t.withdrawn) > acts.MaxAttempts {
			t.withdrawn = slices.Delete(t.withdrawn, 0, 1)
		}
	}
	return len(t.standing) == 0 && !t.firm
}
