// Command tokens answers prompts with the words of a make-believe model, and charges each
// tenant for the tokens of its answers, with a limit per minute and one per day.
//
//	go run ./tokens
//	curl -N -H 'Tenant: 7' -d '{"prompt": "tell me a story", "max_tokens": 400}' http://127.0.0.1:8090/answer
package main

import (
	"flag"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

func main() {
	addr := flag.String("http", "127.0.0.1:8090", "where to listen")
	url := flag.String("redis", "", "a Redis that all instances share, such as redis://127.0.0.1:6379; in memory without one")
	flag.Parse()
	store, err := open(*url)
	if err != nil {
		log.Fatal(err)
	}
	s, err := newService(store, writeStory, limits{perMinute: 1000, perDay: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("answering at http://%s/answer", *addr)
	server := &http.Server{Addr: *addr, Handler: s, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// open returns the store that keeps what tenants have used.
func open(url string) (weir.Taker, error) {
	if url == "" {
		return memstore.New(memstore.Options{}), nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true // a call ends with its context
	return redisstore.New(redis.NewClient(o), redisstore.Options{Logger: slog.Default()})
}
