package httpapi

import (
	"fmt"
	"net/http"
)

// quick serves GETs of the paths that are asked for most, which need no search.
func quick(paths map[string]http.HandlerFunc, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serve := paths[r.URL.Path]; serve != nil && r.Method == http.MethodGet && r.URL.RawPath == "" {
			serve(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// found answers what no route is for with a problem document: 404 for a path that
// is none, 405 with Allow for a method that a path does not know. It never answers
// 2xx to either, OPTIONS included: a proxy takes that for leave to pass.
func found(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			// The mux itself would only look it up again: no pattern has variables.
			handler.ServeHTTP(w, r)
			return
		}
		missing := &missed{header: http.Header{}}
		handler.ServeHTTP(missing, r)
		missing.problem(r).Write(copyTo(w, missing.header), r)
	})
}

// missed takes down what the mux says of a request that it has no handler for.
type missed struct {
	header http.Header
	status int
}

// Header is where the mux writes Allow.
func (m *missed) Header() http.Header { return m.header }

// Write drops the mux's words.
func (m *missed) Write(text []byte) (int, error) { return len(text), nil }

// WriteHeader notes the status.
func (m *missed) WriteHeader(status int) { m.status = status }

func (m *missed) problem(r *http.Request) *problem {
	if m.status == http.StatusMethodNotAllowed {
		return &problem{Status: m.status, Detail: fmt.Sprintf("method is %s: want %s", shownMethod(r.Method), m.header.Get("Allow")), Field: "method"}
	}
	return &problem{Status: http.StatusNotFound, Detail: "the path names nothing here: " + DescriptionJSON + " lists what there is", Field: "path"}
}

func copyTo(w http.ResponseWriter, h http.Header) http.ResponseWriter {
	if allow := h.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	w.Header().Set("Cache-Control", "no-store")
	return w
}

func shownMethod(method string) string { return method[:min(len(method), shownBytes)] }
