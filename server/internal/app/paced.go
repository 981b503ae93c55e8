package app

import (
	"bytes"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/problem"
)

const (
	// pacedPart is the part of one core, as a divisor, that a paced handler takes.
	pacedPart = 5
	// maxPace bounds the pause after one answer.
	maxPace = 2 * time.Second
	// maxPaced bounds the requests that wait for their turn.
	maxPaced = 4
)

// paced has a handler make one answer at a time, and pause after it: pages that are costly with
// many rules are to leave the cores to decisions, however often they are asked for. Requests wait
// for their turn; those beyond a few get 503. A client that reads slowly holds up nobody.
func paced(next http.Handler) http.Handler {
	waiting, turn := make(chan struct{}, maxPaced), make(chan time.Time, 1)
	turn <- time.Time{} // when the next answer may be made
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case waiting <- struct{}{}:
		default:
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Retry-After", "1")
			(&problem.Document{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "others wait for this page already"}).Write(w, r)
			return
		}
		made := &madePage{header: w.Header(), status: http.StatusOK}
		if !func() bool {
			defer func() { <-waiting }()
			return makeInTurn(turn, func() { next.ServeHTTP(made, r) }, r)
		}() {
			return // nobody waits for the answer
		}
		w.WriteHeader(made.status)
		_, _ = w.Write(made.body.Bytes())
	})
}

// makeInTurn calls f when it is its turn, and reports whether it did before the request ended.
func makeInTurn(turn chan time.Time, f func(), r *http.Request) bool {
	var next time.Time
	select {
	case next = <-turn:
	case <-r.Context().Done():
		return false
	}
	defer func() { turn <- next }()
	if deadline.Sleep(r.Context(), time.Until(next)) != nil {
		return false
	}
	begun := time.Now()
	f()
	took := time.Since(begun)
	next = time.Now().Add(min((pacedPart-1)*took, maxPace))
	return true
}

// madePage is an answer in memory.
type madePage struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the header of the answer.
func (p *madePage) Header() http.Header { return p.header }

// WriteHeader keeps the status.
func (p *madePage) WriteHeader(status int) { p.status = status }

// Write keeps a part of the body.
func (p *madePage) Write(b []byte) (int, error) { return p.body.Write(b) }
