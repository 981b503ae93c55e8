package httpapi

import "net/http"

// auth answers the sub-request of a proxy: one descriptor, from the query.
func (a *api) auth(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, a.ClientIP)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	v, err := a.decide(r, q.asked())
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
