package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

func get(h http.Handler, file string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/files/"+file, nil))
	return w
}

func TestBytesAreCharged(t *testing.T) {
	t.Parallel()
	e, err := newEcho(memstore.New(memstore.Options{Now: storetest.NewClock().Now}))
	if err != nil {
		t.Fatal(err)
	}
	used := int64(0)
	for _, file := range []struct {
		name   string
		status int
		bytes  int64
	}{
		{"4000000", 200, 4_000_000},
		{"0", 200, 0},
		{"999999", 200, 999_999},
		{"4000001", 404, int64(len("no such file\n"))},
		{"4000000", 200, 4_000_000},
		{"4000000", 200, 4_000_000},
		{"4000000", 200, 4_000_000},
		{"4000000", 200, 4_000_000},
		{"4000000", 200, 4_000_000},
	} {
		w := get(e, file.name)
		if w.Code != file.status || int64(w.Body.Len()) != file.bytes {
			t.Errorf("%s: %d, %d bytes", file.name, w.Code, w.Body.Len())
		}
		// Told before the download: with the largest file charged.
		want := strconv.FormatInt(30*megabyte-used-largest, 10)
		if got := w.Header().Get("X-RateLimit-Remaining"); got != want {
			t.Errorf("%s: %s bytes remaining, want %s", file.name, got, want)
		}
		if got := w.Header().Get("RateLimit-Policy"); got != `"bytes";q=10000000;w=60` {
			t.Errorf("%s: RateLimit-Policy %s", file.name, got)
		}
		used += file.bytes
	}
	get(e, "1000000")
	used += megabyte
	// 12 bytes less are left than the largest file needs.
	w := get(e, "1")
	var problem struct {
		Status int `json:"status"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != 429 || problem.Status != 429 {
		t.Errorf("with %d bytes used: %d %q", used, w.Code, w.Body)
	}
	missing := used + largest - 30*megabyte
	if got, want := w.Header().Get("Retry-After"), strconv.FormatInt((missing*60+10*megabyte-1)/(10*megabyte), 10); got != want {
		t.Errorf("Retry-After %s, want %s", got, want)
	}
}
