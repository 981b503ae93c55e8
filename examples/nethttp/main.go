// Command nethttp charges each request to its user and to its address in one
// act: it passes if it fits both budgets, and one that does not is charged to
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

// admission holds the limits that every request has to fit.
type admission struct {
	store             weir.Taker
	perUser, perGuest *weir.Limit
	client            clientip.Strategy
}

func newAdmission(store weir.Taker) (*admission, error) {
	// Behind a proxy, say which one: clientip.TrustedRanges.
	a := &admission{store: store, client: clientip.RemoteAddr()}
	var err error
	if a.perUser, err = (&weir.Limit{Name: "user", Count: 60, Period: time.Minute, Burst: 5}).Compile(); err != nil {
		return nil, err
	}
	// An address may be an office: more than a user has, and less than all of
	// them together.
	a.perGuest, err = (&weir.Limit{Name: "address", Count: 120, Period: time.Minute, Burst: 8}).Compile()
	return a, err
}

// admit lets in what fits both limits.
func (a *admission) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act, err := a.act(r)
		if err != nil {
			http.Error(w, "who are you?", http.StatusBadRequest)
			return
		}
		a.store.Take(r.Context(), []*weir.Act{act})
		switch {
		case act.Err != nil:
			// No decision: better to serve than to refuse everybody.
			log.Printf("%s: %v", r.URL.Path, act.Err)
			next.ServeHTTP(w, r)
		case act.Allowed():
			next.ServeHTTP(w, r)
		default:
			refuse(w, act)
		}
	})
}

// act is one question about two keys. They begin differently, so that no user is
// mistaken for an address.
func (a *admission) act(r *http.Request) (*weir.Act, error) {
	address, err := a.client.Key(r)
	if err != nil {
		return nil, err
	}
	return &weir.Act{
		Charges: []weir.Charge{
			// Where clients are not trusted, the user comes from what has
			// authenticated them.
			{Key: "user:" + r.Header.Get("User"), Limit: a.perUser, Cost: 1},
			{Key: "address:" + address, Limit: a.perGuest, Cost: 1},
		},
		Decisions: make([]weir.Decision, 2),
	}, nil
}

// refuse names the limit that refused for longest.
func refuse(w http.ResponseWriter, act *weir.Act) {
	i := weir.Strictest(act.Charges, act.Decisions)
	wait := (act.Decisions[i].RetryAfter + time.Second - 1) / time.Second
	w.Header().Set("Retry-After", fmt.Sprint(int64(wait)))
	http.Error(w, "too many requests of this "+act.LimitOf(i).Name, http.StatusTooManyRequests)
}
