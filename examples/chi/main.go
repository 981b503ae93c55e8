// Command chi lets two exports of a customer run at a time, however long they
// take, while all other routes only count requests.
//
//	go run ./chi
//	curl -i -H 'Customer: 7' http://127.0.0.1:8092/export
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

func main() {
	router, err := newRouter(memstore.New(memstore.Options{}), slowExport)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8092", Handler: router, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("serving http://%s/export", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// export writes all there is about a customer, until the context ends.
type export func(ctx context.Context, w io.Writer, customer string) error

func newRouter(store weir.Taker, run export) (http.Handler, error) {
	requests, err := weir.NewLimiter(store, "requests", weir.Limit{Name: "requests", Count: 100, Period: time.Minute})
	if err != nil {
		return nil, err
	}
	// A place is renewed as long as its export runs. Those of a host that died
	// are free after half a minute.
	exports, err := weir.NewLimiter(store, "exports", weir.Limit{Name: "exports", Algorithm: weir.Concurrency, Count: 2, Period: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.Use(weirhttp.Middleware(requests, byCustomer))
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	r.With(weirhttp.Middleware(exports, byCustomer)).Get("/export", func(w http.ResponseWriter, r *http.Request) {
		if err := run(r.Context(), w, r.Header.Get("Customer")); err != nil {
			log.Printf("export of %q: %v", r.Header.Get("Customer"), err)
		}
	})
	return r, nil
}

// byCustomer limits each customer. Where clients are not trusted, the key comes from the
// code that authenticates them.
var byCustomer = weirhttp.Options{
	Key:     weirhttp.KeyByHeader("Customer"),
	OnError: func(r *http.Request, err error) { log.Printf("%s: %v", r.URL.Path, err) },
}

// slowExport takes ten seconds.
func slowExport(ctx context.Context, w io.Writer, customer string) error {
	for i := range 10 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		if _, err := fmt.Fprintf(w, "part %d of customer %s\n", i+1, customer); err != nil {
			return err
		}
	}
	return nil
}
