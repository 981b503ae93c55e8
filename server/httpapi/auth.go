package httpapi

import (
	"net/http"

	"github.com/weirlimit/weir/server/rules"
)

// auth answers the sub-request of a proxy: one descriptor, from the query. A
// proxy cannot wait.
func (a *api) auth(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, a.ClientIP)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	v, err := a.decide(r, &rules.Request{
		Domain:      q.domain,
		Descriptors: [][]rules.Entry{q.entries},
		Cost:        q.cost,
		ID:          q.id,
		Immediate:   true,
	})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer v.plan.Free()
	a.writeHeaders(w.Header(), v)
	if v.allowed {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	refusal(v, q.deny).Write(w, r)
}
