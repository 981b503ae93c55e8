package lease

import "context"

// GiveBack does now what Start does from time to time.
func (l *Leaser) GiveBack() error { return l.giveBack(context.Background(), l.now()) }
