package lease

import "context"

// ReturnExpired does once what Start does periodically.
func (l *Layer) ReturnExpired() error { return l.returnUnits(context.Background(), l.now()) }
