package weir

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
	// ErrBusyID: the take was repeated too often. A renewal of the take ends this.
	ErrBusyID
)

var idErrors = [...]string{
	ErrUnknownID:  "unknown id: no granted take with it is remembered",
	ErrIDReused:   "id reused: it belongs to an act with other content",
	ErrSettled:    "id settled: its take was settled or refunded already",
	ErrReleased:   "id released: its take was released already",
	ErrOverRefund: "refund above what the take was granted",
	ErrBusyID:     "id busy: its take was repeated 32 times; renew the take, or use another id",
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
