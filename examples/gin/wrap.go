package main

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
)

// wrap makes a handler for gin of a middleware for net/http. What the handlers
// behind it write passes through the middleware, which goes by it.
func wrap(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		outside, passed := c.Writer, false
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			c.Writer, c.Request = &writer{outside, w}, r
			c.Next()
		})).ServeHTTP(outside, c.Request)
		c.Writer = outside
		if !passed {
			c.Abort()
		}
	}
}

// writer is gin's own, for all but what a middleware has to see.
type writer struct {
	gin.ResponseWriter
	seen http.ResponseWriter
}

// WriteHeader shows the status to the middleware.
func (w *writer) WriteHeader(status int) { w.seen.WriteHeader(status) }

// Write shows a part of the body to the middleware.
func (w *writer) Write(p []byte) (int, error) { return w.seen.Write(p) }

// WriteString shows a part of the body to the middleware.
func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.seen, s) }
