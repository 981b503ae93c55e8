package rules

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// The bounds of a request.
const (
	// MaxDescriptors is how many descriptors a request may have.
	MaxDescriptors = 512
	// MaxEntries is how many entries a descriptor may have.
	MaxEntries = config.MaxDepth
	// MaxKeyBytes is the length of the longest key of an entry.
	MaxKeyBytes = config.MaxTextBytes
	// MaxCharges is how many charges a request may make. Of rules with an algorithm it
	// is [weir.MaxCharges], since those are decided together.
	MaxCharges = 1024
)

// Bounds limit the size of a request. The zero value stands for the largest bound,
// [MaxDescriptors]. Values have none: clients choose them, and one that a client could make
// too long would get no decision. The front end bounds the whole message, and keys hold the
// digest of a long value.
type Bounds struct{ Descriptors int }

// MostDescriptors is how many descriptors a request may have.
func (b Bounds) MostDescriptors() int { return cmp.Or(b.Descriptors, MaxDescriptors) }

// CheckDescriptors checks how many descriptors a request has. The error is a
// [*weir.InvalidError].
func (b Bounds) CheckDescriptors(n int) error {
	if n == 0 || n > b.MostDescriptors() {
		return invalid("descriptors", n, fmt.Sprintf("1 … %d descriptors", b.MostDescriptors()))
	}
	return nil
}

// TooManyEntries is the error of a descriptor with more than [MaxEntries].
func TooManyEntries(descriptor, entries int) error {
	return invalid(fmt.Sprintf("descriptors[%d].entries", descriptor), entries, fmt.Sprintf("at most %d entries", MaxEntries))
}

func checkEntries(i int, entries []Entry) error {
	if len(entries) > MaxEntries {
		return TooManyEntries(i, len(entries))
	}
	for j, e := range entries {
		if len(e.Key) > MaxKeyBytes {
			return tooLong(fmt.Sprintf("descriptors[%d].entries[%d].key", i, j), e.Key, MaxKeyBytes)
		}
	}
	return nil
}

func tooLong(field, text string, most int) error {
	return invalid(field, strconv.Itoa(len(text))+" bytes", fmt.Sprintf("at most %d bytes", most))
}

// checkCharges checks how many charges a request makes, of rules with an algorithm and
// in all.
func checkCharges(algorithmic, all int) error {
	switch {
	case algorithmic > weir.MaxCharges:
		return invalid("descriptors", fmt.Sprintf("%d charges of rules with an algorithm", algorithmic), fmt.Sprintf("at most %d", weir.MaxCharges))
	case all > MaxCharges:
		return invalid("descriptors", fmt.Sprintf("%d charges", all), fmt.Sprintf("at most %d", MaxCharges))
	}
	return nil
}
