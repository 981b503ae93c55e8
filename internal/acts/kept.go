package acts

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir"
)

// A KeptError says that the store did not decide an act that ends a charge, and that the act
// was kept and will be delivered. Its class is [weir.ErrAmbiguous].
type KeptError struct {
	Kind   weir.Kind
	Reason error // why the store did not decide it
}

// Error says what will happen, and why it did not.
func (e *KeptError) Error() string {
	return fmt.Sprintf("weir: %v: %v: it will be delivered, repeat it for the numbers: %v", e.Kind, weir.ErrAmbiguous, e.Reason)
}

// Unwrap returns the class.
func (e *KeptError) Unwrap() error { return weir.ErrAmbiguous }

// Kept marks the error for package weir.
func (e *KeptError) Kept() {}

// Kept reports whether an error is a [KeptError].
func Kept(err error) bool {
	var e *KeptError
	return errors.As(err, &e)
}
