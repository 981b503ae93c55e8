package weirhttp_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// Two requests an hour for each client address.
func ExampleMiddleware() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.Limit{Name: "hourly", Count: 2, Period: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := weirhttp.Middleware(limiter, weirhttp.Options{})(hello)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "hourly";q=2;w=3600
	// 200 "hourly";q=2;w=3600
	// 429 "hourly";q=2;w=3600
}

// Behind proxies in 10.0.0.0/8: five failed logins an hour for each client, while
// those that succeed cost nothing.
func ExampleOptions_logins() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(5))
	if err != nil {
		log.Fatal(err)
	}
	proxies, err := clientip.TrustedRanges(netip.MustParsePrefix("10.0.0.0/8"))
	if err != nil {
		log.Fatal(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "correct" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	handler := weirhttp.Middleware(limiter, weirhttp.Options{
		Key:     weirhttp.KeyByIP(proxies),
		Headers: weirhttp.HeadersNone,
		Charge: func(r weirhttp.Response) int64 {
			if r.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	})(login)

	codes := map[int]int{}
	for i := range 20 {
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("password="+[]string{"correct", "guess"}[i%2]))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", "192.0.2.66")
		r.RemoteAddr = "10.0.0.1:4711"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		codes[w.Code]++
	}
	fmt.Println(codes)
	// Output: map[200:5 401:5 429:10]
}

// Each plan has a limiter; all users of a plan share its limits, not its budget.
func ExampleMiddlewareFunc() {
	store := memstore.New(memstore.Options{})
	plans := map[string]*weir.Limiter{}
	for plan, limit := range map[string]weir.Limit{"free": weir.PerMinute(2), "paid": weir.PerMinute(4)} {
		limiter, err := weir.NewLimiter(store, "api", limit)
		if err != nil {
			log.Fatal(err)
		}
		plans[plan] = limiter
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := weirhttp.MiddlewareFunc(
		// A plan that is not in the map is not limited.
		func(r *http.Request) *weir.Limiter { return plans[r.Header.Get("Plan")] },
		weirhttp.Options{
			Key:  weirhttp.JoinKeys(weirhttp.KeyByHeader("Plan"), weirhttp.KeyByHeader("Authorization")),
			Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		},
	)(hello)

	granted := map[string]int{}
	for range 10 {
		for _, plan := range []string{"free", "paid", "staff"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Plan", plan)
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code == http.StatusOK {
				granted[plan]++
			}
		}
	}
	fmt.Println(granted)
	// Output: map[free:2 paid:4 staff:10]
}

// Teams share one budget: what is guaranteed to a team is never refused to it, and what it
// leaves unused is lent to the others.
func ExampleMiddlewareFunc_shares() {
	store := memstore.New(memstore.Options{})
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 100, Period: time.Hour},
		Guarantees: map[string]int64{"search": 30, "ads": 50},
	}.Compile()
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := weirhttp.MiddlewareFunc(
		func(r *http.Request) *weir.Limiter { return shares.Limiter(store, "budget", r.Header.Get("Team")) },
		// All teams share the budget of this key.
		weirhttp.Options{Key: func(*http.Request) (string, error) { return "backend", nil }},
	)(hello)

	ask := func(team string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Team", team)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	granted := 0
	for ask("new").Code == http.StatusOK { // a team without a guarantee takes all that is lent
		granted++
	}
	fmt.Println(granted, "of 100")
	w := ask("ads")
	fmt.Println(w.Code, "by alternative", w.Header().Get("Weir-Alternative"))
	// Output:
	// 84 of 100
	// 200 by alternative 1
}

// Batch jobs leave 30 of 100 units to people, on the same budget.
func ExampleMiddlewareFunc_priorities() {
	interactive, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	batch := interactive.Keeping(30)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := weirhttp.MiddlewareFunc(func(r *http.Request) *weir.Limiter {
		if r.Header.Get("Class") == "batch" {
			return batch
		}
		return interactive
	}, weirhttp.Options{})(hello)

	for _, class := range []string{"batch", "interactive"} {
		granted := 0
		for range 200 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Class", class)
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code == http.StatusOK {
				granted++
			}
		}
		fmt.Println(class, granted)
	}
	// Output:
	// batch 70
	// interactive 30
}

// A megabyte an hour for each client: the most that an answer can be is charged
// first, and what was not sent is given back.
func ExampleOptions_bytes() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(1_000_000))
	if err != nil {
		log.Fatal(err)
	}
	file := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 300_000)) })
	handler := weirhttp.Middleware(limiter, weirhttp.Options{
		Cost:   func(*http.Request) int64 { return 500_000 },
		Charge: func(r weirhttp.Response) int64 { return r.Bytes },
	})(file)

	for range 4 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
	// 429
}

// One export of a user at a time, and ten a day.
func ExampleMiddleware_places() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api",
		weir.Limit{Name: "at a time", Algorithm: weir.Concurrency, Count: 1, Period: 30 * time.Second},
		weir.Limit{Name: "a day", Count: 10, Period: 24 * time.Hour},
	)
	if err != nil {
		log.Fatal(err)
	}
	var handler http.Handler
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))
		return w.Code
	}
	second := 0
	handler = weirhttp.Middleware(limiter, weirhttp.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if second == 0 {
			second = ask() // while the first still runs
		}
	}))
	first := ask()
	fmt.Println(first, second, ask())
	// Output: 200 429 200
}

// A client that waits up to a minute where a server has had enough of it.
func ExampleTransport() {
	client := &http.Client{Transport: &weirhttp.Transport{MaxWait: time.Minute}}
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "at attempt", attempts)
	// Output: 200 at attempt 2
}
