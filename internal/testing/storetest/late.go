package storetest

import (
	"runtime"
	"sync"

	"github.com/weirlimit/weir"
)

// A LateAct is the error of an act whose reply is late.
type LateAct struct {
	act     *weir.Act
	mu      sync.Mutex // guards what follows
	landed  bool
	waiting []func(*weir.Act)
}

// NewLateAct makes the reply to an act late.
func NewLateAct(a *weir.Act) *LateAct {
	l := &LateAct{act: a}
	a.Err = l
	return l
}

// Error implements error.
func (*LateAct) Error() string { return "late" }

// Unwrap returns the class.
func (*LateAct) Unwrap() error { return weir.ErrAmbiguous }

// Then implements [acts.Pending].
func (l *LateAct) Then(f func(*weir.Act)) {
	l.mu.Lock()
	if !l.landed {
		l.waiting = append(l.waiting, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(l.act)
}

// Land lets the reply come, as answer writes it into the act. It waits until somebody waits for
// the reply: until then the act is the caller's.
func (l *LateAct) Land(answer func(*weir.Act)) {
	for waits := false; !waits; runtime.Gosched() {
		l.mu.Lock()
		waits = len(l.waiting) > 0
		l.mu.Unlock()
	}
	answer(l.act)
	l.mu.Lock()
	l.landed = true
	waiting := l.waiting
	l.mu.Unlock()
	for _, f := range waiting {
		f(l.act)
	}
}
