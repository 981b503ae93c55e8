package httpapi

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir/internal/engine/memengine"
)

func BenchmarkAuth(b *testing.B) {
	h := handler(b, Options{Taker: memengine.New(memengine.Options{})})
	r := subRequest("domain=shop&from=user=X-User")
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.serve(h, r)
	}
}

func BenchmarkTake(b *testing.B) {
	h := handler(b, Options{Taker: memengine.New(memengine.Options{})})
	body := takeOf(``, "user=1", "path=/login")
	b.ReportAllocs()
	for b.Loop() {
		take(h, body)
	}
}
