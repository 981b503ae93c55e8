package httpapi

import (
	"net/http"
	"sync"
)

// A call is what answering a sub-request needs, kept for further ones.
type call struct {
	query   query
	verdict verdict
}

var calls = sync.Pool{New: func() any { return new(call) }}

// free gives the memory to further calls, without what it refers to.
func (c *call) free() {
	*c = call{}
	calls.Put(c)
}

// auth answers the sub-request of a proxy: one descriptor, from the query.
func (a *api) auth(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	q, v := &c.query, &c.verdict
	if err := q.parse(r, a.ClientIP); err != nil {
		a.fail(w, r, err)
		return
	}
	if err := a.decide(r, q.asked(), v); err != nil {
		a.fail(w, r, err)
		return
	}
	a.writeHeaders(w.Header(), v)
	if v.allowed {
		w.WriteHeader(http.StatusNoContent)
	} else {
		a.refusal(v, q.deny).Write(w, r)
	}
	// Not where the store panics: nobody knows what it still works on.
	v.plan.Free()
	c.free()
}
