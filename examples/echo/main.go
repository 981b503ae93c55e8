// Command echo charges each client for the bytes of its downloads: ten megabytes
// a minute, thirty at once.
//
//	go run ./echo
//	curl -i -o /dev/null http://127.0.0.1:8094/files/2000000
package main

import (
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

const (
	megabyte = 1_000_000
	// largest is the size of the largest file, and what a download is charged
	// before it is known which.
	largest = 4 * megabyte
)

func main() {
	e, err := newEcho(memstore.New(memstore.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8094", Handler: e, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("serving http://%s/files/1000", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newEcho(store weir.Taker) (*echo.Echo, error) {
	traffic, err := weir.NewLimiter(store, "bytes", weir.Limit{Name: "bytes", Count: 10 * megabyte, Period: time.Minute, Burst: 30 * megabyte})
	if err != nil {
		return nil, err
	}
	// The most that it can be is charged first, so that many downloads at once do
	// not pass on the same bytes; then what is not sent is given back.
	metered := weirhttp.Middleware(traffic, weirhttp.Options{
		Cost:    func(*http.Request) int64 { return largest },
		Charge:  func(r weirhttp.Response) int64 { return r.Bytes },
		OnError: func(r *http.Request, err error) { log.Printf("%s: %v", r.URL.Path, err) },
	})
	e := echo.New()
	e.GET("/files/:size", file, echo.WrapMiddleware(metered))
	return e, nil
}

// file sends as many bytes as its name says.
func file(c *echo.Context) error {
	size, err := strconv.ParseInt(c.Param("size"), 10, 64)
	if err != nil || size < 0 || size > largest {
		return c.String(http.StatusNotFound, "no such file\n")
	}
	return c.Stream(http.StatusOK, echo.MIMEOctetStream, io.LimitReader(zeros{}, size))
}

// zeros is what the files are made of.
type zeros struct{}

// Read fills p with zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
