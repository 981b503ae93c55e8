// Command gin protects a login: users who know the password never wait, and a guesser has
// five tries an hour, for each address and each name.
//
//	go run ./gin
//	curl -i -d 'name=ann&password=guess' http://127.0.0.1:8093/login
package main

import (
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	// Real passwords are not compared as they are.
	engine, err := newEngine(memstore.New(memstore.Options{}), func(name, password string) bool {
		return name == "ann" && password == "correct"
	})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8093", Handler: engine, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("serving http://%s/login", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newEngine(store weir.Taker, known func(name, password string) bool) (*gin.Engine, error) {
	failures := weir.Limit{Count: 5, Period: time.Hour, Algorithm: weir.SlidingLog}
	perAddress, err := weir.NewLimiter(store, "address", failures)
	if err != nil {
		return nil, err
	}
	perName, err := weir.NewLimiter(store, "name", failures)
	if err != nil {
		return nil, err
	}
	login := func(c *gin.Context) {
		if !known(c.PostForm("name"), c.PostForm("password")) {
			c.String(http.StatusUnauthorized, "wrong name or password\n")
			return
		}
		c.String(http.StatusOK, "welcome\n")
	}
	engine := gin.New()
	engine.Use(gin.Recovery())
	engine.POST("/login", limit(perAddress, weirhttp.KeyByIP(clientip.RemoteAddr())), limit(perName, name), login)
	return engine, nil
}

// name keys by the account that is to be entered, however it is spelled.
func name(r *http.Request) (string, error) { return strings.ToLower(r.PostFormValue("name")), nil }

// limit charges a try when it comes and gives it back if it was right: of many
// guesses at once no more than five are looked at.
func limit(limiter *weir.Limiter, key func(*http.Request) (string, error)) gin.HandlerFunc {
	return wrap(weirhttp.Middleware(limiter, weirhttp.Options{
		Key: key,
		// Headers would tell who is being attacked, and how far that has come.
		Headers: weirhttp.HeadersNone,
		Charge: func(r weirhttp.Response) int64 {
			if r.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	}))
}
