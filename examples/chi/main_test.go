package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

func get(h http.Handler, path, customer string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Customer", customer)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestExports starts more exports than may run at a time.
func TestExports(t *testing.T) {
	t.Parallel()
	began, finish := make(chan bool), make(chan bool)
	h, err := newRouter(memstore.New(memstore.Options{Now: storetest.NewClock().Now}), func(_ context.Context, w io.Writer, customer string) error {
		began <- true
		<-finish
		_, err := io.WriteString(w, "all of "+customer)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	start := func(customer string) {
		running.Go(func() {
			if w := get(h, "/export", customer); w.Code != 200 || w.Body.String() != "all of "+customer {
				t.Errorf("an export of %s: %d %q", customer, w.Code, w.Body)
			}
		})
		<-began
	}
	start("7")
	start("7")
	start("8") // has places of its own

	w := get(h, "/export", "7")
	var problem struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != 429 || problem.Status != 429 || problem.Title != "Quota exceeded" {
		t.Errorf("a third at a time: %d %q, %v", w.Code, w.Body, err)
	}
	limits := w.Header().Values("RateLimit-Policy")
	if len(limits) != 2 || limits[1] != `"exports";q=2;qu="concurrent-requests"` || w.Header().Get("Retry-After") != "1" {
		t.Errorf("a third at a time: %v", w.Header())
	}
	if w := get(h, "/", "7"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "96" {
		t.Errorf("another route meanwhile: %d %v", w.Code, w.Header())
	}

	finish <- true
	finish <- true
	finish <- true
	running.Wait()
	start("7") // its place is free again
	finish <- true
	running.Wait()
}
