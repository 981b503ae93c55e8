package app

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPaced: a page that takes 200 ms takes a fifth of a core, however often it is asked for, and a
// cheap page does not wait.
func TestPaced(t *testing.T) {
	t.Parallel()
	for _, cost := range []time.Duration{0, 200 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			made := 0
			handler := paced(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(cost)
				made++
				w.Header().Set("A", "b")
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write([]byte("page"))
			}))
			begun := time.Now()
			for range 5 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				if w.Code != http.StatusAccepted || w.Body.String() != "page" || w.Header().Get("A") != "b" {
					t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			if took, want := time.Since(begun), 5*cost+4*min(4*cost, maxPace); took != want || made != 5 {
				t.Errorf("%v: 5 pages in %v, want %v", cost, took, want)
			}
		})
	}
}

// TestPacedIsBounded: of many requests at once a few wait, the others are refused, and those that
// leave do not wait.
func TestPacedIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := paced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		var asking sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range 20 {
			asking.Go(func() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
			})
		}
		asking.Wait()
		if codes[http.StatusOK] != maxPaced || codes[http.StatusServiceUnavailable] != 20-maxPaced {
			t.Errorf("%v", codes)
		}
	})
}
