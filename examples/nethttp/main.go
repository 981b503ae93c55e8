// Command nethttp charges each request to its user and to its address in one
// decision: it is granted if it fits both budgets, and a refused one is charged to
// neither. An outer limit of the middleware protects the whole site.
//
//	go run ./nethttp
//	curl -i -H 'User: 7' http://127.0.0.1:8091/
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

func main() {
	site, err := newSite(memstore.New(memstore.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8091", Handler: site, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("serving http://%s/", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// newSite returns the handler of the whole site.
func newSite(store weir.Taker) (http.Handler, error) {
	everybody, err := weir.NewLimiter(store, "site", weir.PerSecond(500))
	if err != nil {
		return nil, err
	}
	a, err := newAdmission(store)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, user %s\n", r.Header.Get("User"))
	})
	whole := weirhttp.Middleware(everybody, weirhttp.Options{
		Key: func(*http.Request) (string, error) { return "all", nil },
	})
	return whole(a.admit(mux)), nil
}

// admission has the limits that every request has to fit.
type admission struct {
	perUser, perAddress *weir.Limiter
	client              clientip.Strategy
}

func newAdmission(store weir.Taker) (*admission, error) {
	// Behind a proxy, say which one: clientip.TrustedRanges.
	a := &admission{client: clientip.RemoteAddr()}
	var err error
	a.perUser, err = weir.NewLimiter(store, "user", weir.Limit{Name: "user", Count: 60, Period: time.Minute, Burst: 5})
	if err != nil {
		return nil, err
	}
	// An address may be an office: more than a user has, and less than all of them together.
	a.perAddress, err = weir.NewLimiter(store, "address", weir.Limit{Name: "address", Count: 120, Period: time.Minute, Burst: 8})
	return a, err
}

// admit serves requests that fit both limits.
func (a *admission) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, err := a.client.Key(r)
		if err != nil {
			http.Error(w, "who are you?", http.StatusBadRequest)
			return
		}
		// Where clients are not trusted, the user comes from the code that authenticates them.
		user := r.Header.Get("User")
		d, err := weir.Together(a.perUser.Cost(user, 1), a.perAddress.Cost(address, 1)).Allow(r.Context())
		switch {
		case err != nil:
			// No decision: better to serve than to refuse everybody.
			log.Printf("%s: %v", r.URL.Path, err)
			next.ServeHTTP(w, r)
		case d.Allowed():
			next.ServeHTTP(w, r)
		default:
			refuse(w, d)
		}
	})
}

// refuse names the limit that refused for longest.
func refuse(w http.ResponseWriter, d weir.Decision) {
	if seconds, ok := d.RetrySeconds(); ok {
		w.Header().Set("Retry-After", fmt.Sprint(seconds))
	}
	http.Error(w, "too many requests of this "+d.Limit.Name, http.StatusTooManyRequests)
}
