package acts

import "github.com/weirlimit/weir"

// Pending is implemented by errors of the class [weir.ErrAmbiguous] whose outcome may still
// become known, because the call continues although its caller has left. Use errors.As to
// find it.
type Pending interface {
	// Then calls f once with the act and its outcome: its decisions, or an error if
	// the outcome will never be known. The call may happen at once, or later in another
	// goroutine, which f must not block. The act is a copy that f may keep.
	Then(f func(*weir.Act))
}
