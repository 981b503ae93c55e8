package weir

import (
	"errors"
	"fmt"
)

// The classes of error. Every error of a [Taker] wraps exactly one of them. Use errors.Is
// to find out whether anything was charged and what you may do next. Errors that
// wrap a class begin with "weir: " and the verb, so the classes of a store do not.
var (
	// ErrInvalid: the call is outside the contract. Nothing was charged, and repeating
	// it is useless. The error is an [*InvalidError].
	ErrInvalid = errors.New("weir: invalid request")
	// ErrNotApplied: the store failed before it ran anything. Nothing was
	// charged, and repeating the call is safe.
	ErrNotApplied = errors.New("not applied")
	// ErrAmbiguous: the request may have reached the store, but no complete reply
	// arrived. The charge may have been made, or may still be made.
	ErrAmbiguous = errors.New("outcome unknown")
	// ErrMisconfigured: the store refuses every call because of credentials,
	// permissions or certificates. Nothing was charged; an operator has to act.
	ErrMisconfigured = errors.New("store misconfigured")
	// ErrBackend: the store sent a reply that the script cannot have sent.
	ErrBackend = errors.New("unexpected answer of the store")
)

// InvalidError says which field of a limit, an act or a configuration is outside
// the contract. It wraps [ErrInvalid].
type InvalidError struct {
	Field string // the field's name, as a caller writes it: "count", "cost"
	List  string // the list whose elements have the field: "charges"; empty: none
	Index int    // the index of the element in List
	Value string // the value of the field
	Want  string // what was expected
	// Beside is the field of the same limit that the value does not fit; empty if the
	// value is wrong without it.
	Beside string
	// Default is the value that 0 stands for in the limit or option; empty if 0 has no
	// such meaning.
	Default string
}

// Error names the field, the value and what was expected.
func (e *InvalidError) Error() string {
	text := fmt.Sprintf("weir: %s is %s: want %s", e.Path(), e.Value, e.Want)
	if e.Default != "" {
		text += ", or 0 for " + e.Default
	}
	return text
}

// Path returns the field with its position in a list: "count", "charges[2].cost".
func (e *InvalidError) Path() string {
	if e.List == "" {
		return e.Field
	}
	return fmt.Sprintf("%s[%d].%s", e.List, e.Index, e.Field)
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

func invalid(field string, value any, want string) error {
	return &InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
}

// invalidBeside is invalid for a value that does not fit another field.
func invalidBeside(field string, value any, other, want string) error {
	return &InvalidError{Field: field, Value: fmt.Sprint(value), Beside: other, Want: want}
}

// invalidNumber is invalid for a field whose 0 stands for a default.
func invalidNumber(field string, value any, least, most int64, byDefault string) error {
	return &InvalidError{Field: field, Value: fmt.Sprint(value), Want: fmt.Sprintf("%d … %d", least, most), Default: byDefault}
}

// invalidIn is invalid for a field of the i-th element of a list.
func invalidIn(list string, i int, field string, value any, want string) error {
	return &InvalidError{List: list, Index: i, Field: field, Value: fmt.Sprint(value), Want: want}
}

// kept reports whether an act that ends a charge was kept, and will be delivered to the store.
func kept(err error) bool {
	var k interface{ Kept() }
	return errors.As(err, &k)
}
