package plainhttp

import (
	"context"
	"net/http"

	"github.com/weirlimit/weir/internal/recorder"
)

// Derive returns r with the context that derive makes of r's own for a value, which never makes
// another one of the same. For the requests of a Server, a connection remembers what was made last,
// and the copy of r has memory that the next request uses again, like r.
func Derive[V comparable](w http.ResponseWriter, r *http.Request, v V, derive func(context.Context, V) context.Context) *http.Request {
	rec, _ := w.(*recorder.Recorder)
	if rec == nil {
		return r.WithContext(derive(r.Context(), v))
	}
	a, _ := rec.ResponseWriter.(*answer)
	if a == nil || r != &a.conn.request {
		return r.WithContext(derive(r.Context(), v))
	}
	c := a.conn
	d := &c.derived
	if d.base == nil || d.of != any(v) {
		d.of, d.base = v, c.base.WithContext(derive(r.Context(), v))
	}
	d.request = *d.base
	c.head.fill(&d.request, &c.url)
	d.request.Body = r.Body
	return &d.request
}

// derived is a request with another context than those of its connection.
type derived struct {
	of      any           // what the context was made of
	base    *http.Request // with the context and the address; nil: none was made
	request http.Request
}
