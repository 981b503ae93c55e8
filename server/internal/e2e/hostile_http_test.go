package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/openapitest"
)

const (
	bodies    = 16
	bodyBytes = 1 << 30
	drips     = 500
)

// TestHostileBodies sends 16 bodies of 1 GiB at once, with and without saying how
// long they are: 413, and none of it is kept.
func TestHostileBodies(t *testing.T) {
	s := besiege(t)
	s.during(func() { s.flood(bodies) })
	s.uncharged()
}

// flood sends so many bodies of 1 GiB at once.
func (s *siege) flood(bodies int) {
	var sending sync.WaitGroup
	for i := range bodies {
		path, length := "/v1/take", "Transfer-Encoding: chunked"
		if i%2 == 1 {
			path = "/json"
		}
		if i%4 > 1 {
			length = fmt.Sprintf("Content-Length: %d", bodyBytes)
		}
		conn := connect(s.t, s.addr)
		sending.Go(func() {
			if got := s.pour(conn, path, length); got != http.StatusRequestEntityTooLarge {
				s.t.Errorf("%s, %s: got %d, want 413", path, length, got)
			}
		})
	}
	sending.Wait()
}

// pour sends a body until it is at its end or nobody takes more of it.
func (s *siege) pour(conn net.Conn, path, length string) int {
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n%s\r\n\r\n", path, length)
	if strings.HasPrefix(length, "Transfer") {
		fmt.Fprintf(conn, "%x\r\n", bodyBytes)
	}
	done := make(chan int, 1)
	go func() {
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			s.t.Errorf("%s, %s: %v", path, length, err)
			done <- 0
			return
		}
		got.Body.Close()
		done <- got.StatusCode
	}()
	_, _ = io.CopyN(conn, endless(`{"domain":"hostile","x":`), bodyBytes)
	return <-done
}

// TestHostileDrips keeps 500 connections busy a byte at a time, or with nothing at
// all: others are served, and the server ends them all.
func TestHostileDrips(t *testing.T) {
	s := besiege(t)
	s.during(func() { s.drip(drips) })
	s.uncharged()
}

// drip keeps so many connections busy, until the server has ended them all.
func (s *siege) drip(connections int) {
	beginnings := []string{
		"",
		"G",
		"GET /v1/auth?domain=hostile&victim=1 HTTP/1.1\r\nHost: weir\r\nX-Slow: ",
		"POST /v1/take HTTP/1.1\r\nHost: weir\r\nContent-Length: 1000\r\n\r\n",
		"POST /v1/take HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n",
	}
	var dripping sync.WaitGroup
	for i := range connections {
		conn := connect(s.t, s.addr)
		dripping.Go(func() { drip(s.t, conn, beginnings[i%len(beginnings)]) })
	}
	dripping.Wait()
}

// drip says a beginning, and then a byte from time to time until it is hung up on.
func drip(t *testing.T, conn net.Conn, beginning string) {
	defer conn.Close()
	_, _ = io.WriteString(conn, beginning)
	ended := make(chan bool, 1)
	go func() {
		_, ok := hungUp(conn)
		ended <- ok
	}()
	for {
		select {
		case ok := <-ended:
			if !ok {
				t.Errorf("%q was kept for %v", beginning, patience)
			}
			return
		case <-time.After(200 * time.Millisecond):
			if beginning != "" {
				_, _ = io.WriteString(conn, "1")
			}
		}
	}
}

// TestHostileReaders ask and ask, and read no answer: they are hung up on.
func TestHostileReaders(t *testing.T) {
	s := besiege(t)
	s.during(func() {
		var asking sync.WaitGroup
		for range 20 {
			conn := connect(t, s.addr)
			asking.Go(func() {
				defer conn.Close()
				n, err := io.CopyN(conn, endless("GET /openapi.yaml HTTP/1.1\r\nHost: weir\r\n\r\n"), 1<<30)
				if late, ok := err.(net.Error); n == 1<<30 || ok && late.Timeout() {
					t.Errorf("nobody ended it after %d bytes: %v", n, err)
				}
			})
		}
		asking.Wait()
	})
}

// TestHostileRequests sends what is outside the contract: each is told so in a
// problem document that names where, or by the server's plain 4xx, and nothing is
// charged.
func TestHostileRequests(t *testing.T) {
	s := besiege(t)
	const victim = `{"entries":[{"key":"victim","value":"1"}]}`
	body := func(descriptors, rest string) string {
		return `{"domain":"hostile","descriptors":[` + descriptors + `]` + rest + `}`
	}
	many := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		path, body string
		status     int
		field      string
	}{
		"no domain":              {"/v1/take", `{"descriptors":[` + victim + `]}`, 400, "domain"},
		"empty domain":           {"/v1/take", `{"domain":"","descriptors":[` + victim + `]}`, 400, "domain"},
		"no descriptors":         {"/v1/take", body("", ""), 400, "descriptors"},
		"no entries":             {"/v1/take", body(victim+`,{"entries":[]}`, ""), 400, "descriptors[1].entries"},
		"1 000 descriptors":      {"/v1/take", body(many(1000, victim), ""), 400, "descriptors"},
		"10 000 descriptors":     {"/v1/take", body(many(10000, victim), ""), 413, "body"},
		"17 entries":             {"/v1/take", body(`{"entries":[`+many(17, `{"key":"victim","value":"1"}`)+`]}`, ""), 400, "descriptors[0].entries"},
		"a value too long":       {"/v1/take", body(victim+`,{"entries":[{"key":"victim","value":"`+long(16<<10+1)+`"}]}`, ""), 400, "descriptors[1].entries[0].value"},
		"a value of 1 MB":        {"/v1/take", body(`{"entries":[{"key":"victim","value":"`+long(1<<20)+`"}]}`, ""), 413, "body"},
		"an id too long":         {"/v1/take", body(victim, `,"id":"`+long(129)+`"`), 400, "id"},
		"negative cost":          {"/v1/take", body(victim, `,"cost":-1`), 400, "cost"},
		"huge cost":              {"/v1/take", body(victim, `,"cost":9223372036854775807`), 400, "cost"},
		"larger than any number": {"/v1/take", body(victim, `,"cost":9223372036854775808`), 400, "cost"},
		"a broken cost":          {"/v1/take", body(victim, `,"cost":1.5`), 400, "cost"},
		"a cost in words":        {"/v1/take", body(victim, `,"cost":"1"`), 400, "cost"},
		"no number":              {"/v1/take", body(victim, `,"cost":NaN`), 400, "body"},
		"unknown field":          {"/v1/take", body(victim, `,"limit":1`), 400, "limit"},
		"a field too long":       {"/v1/take", `{"` + long(60000) + `":1}`, 400, long(80) + "…"},
		"a field without a name": {"/v1/take", `{"":1}`, 400, `""`},
		"auth, a long key twice": {"/v1/auth?domain=hostile&" + long(5000) + "=1&" + long(5000) + "=2", "", 400, long(80) + "…"},
		"unknown mode":           {"/v1/take", body(victim, `,"mode":"free"`), 400, "mode"},
		"cut short":              {"/v1/take", body(victim, "")[:60], 400, "body"},
		"two bodies":             {"/v1/take", body(victim, "") + body(victim, ""), 400, "body"},
		"not UTF-8":              {"/v1/take", body("{\"entries\":[{\"key\":\"victim\",\"value\":\"\xff\"}]}", ""), 400, "body"},
		"nothing":                {"/v1/take", "", 400, "body"},
		"null":                   {"/v1/take", "null", 400, "domain"},
		"a list":                 {"/v1/take", "[]", 400, "body"},
		"nesting":                {"/v1/take", strings.Repeat("[", 60000), 400, "body"},
		"nested where it counts": {"/v1/take", `{"domain":` + strings.Repeat(`{"a":`, 12000), 400, "body"},
		"refund of nothing":      {"/v1/refund", body(victim, `,"cost":1`), 400, "id"},
		"negative refund":        {"/v1/refund", body(victim, `,"id":"a","cost":-5`), 400, "cost"},
		"refund without a take":  {"/v1/refund", body(victim, `,"id":"a","cost":5`), 404, "id"},
		"Envoy, no domain":       {"/json", `{"descriptors":[` + victim + `]}`, 400, ""},
		"Envoy, 513 descriptors": {"/json", body(many(513, victim), ""), 400, ""},
		"Envoy, wrong unit":      {"/json", body(`{"entries":[{"key":"victim","value":"1"}],"limit":{"requestsPerUnit":5,"unit":99}}`, ""), 400, ""},
		"Envoy, negative addend": {"/json", body(`{"entries":[{"key":"victim","value":"1"}],"hitsAddend":-1}`, ""), 400, ""},
		"Envoy, nesting":         {"/json", strings.Repeat("[", 200000), 400, ""},
		"auth, no query":         {"/v1/auth", "", 400, "domain"},
		"auth, no domain":        {"/v1/auth?victim=1", "", 400, "domain"},
		"auth, cost 0":           {"/v1/auth?domain=hostile&victim=1&cost=0", "", 400, "cost"},
		"auth, negative cost":    {"/v1/auth?domain=hostile&victim=1&cost=-1", "", 400, "cost"},
		"auth, huge cost":        {"/v1/auth?domain=hostile&victim=1&cost=9223372036854775808", "", 400, "cost"},
		"auth, pasted cost":      {"/v1/auth?domain=hostile&cost=5&victim=1&cost=0", "", 400, "cost"},
		"auth, pasted domain":    {"/v1/auth?domain=hostile&victim=1&domain=other", "", 400, "domain"},
		"auth, pasted deny":      {"/v1/auth?domain=hostile&victim=1&deny=200", "", 400, "deny"},
		"auth, broken escape":    {"/v1/auth?domain=hostile&victim=%zz", "", 400, "query"},
		"auth, long value":       {"/v1/auth?domain=hostile&victim=" + long(16<<10+1), "", 400, "descriptors[0].entries[0].value"},
		"auth, 1 000 entries":    {"/v1/auth?domain=hostile&victim=1" + numbered(1000), "", 400, "descriptors[0].entries"},
	} {
		t.Run(name, func(t *testing.T) {
			status, field := s.send(t, c.path, c.body)
			if status != c.status || field != c.field {
				t.Errorf("got %d about %q, want %d about %q", status, field, c.status, c.field)
			}
		})
	}
	s.uncharged()
}

// described is the interface as the binary describes it.
var described = sync.OnceValue(func() *openapitest.Document {
	d, err := openapitest.Parse(httpapi.Description())
	if err != nil {
		panic(err)
	}
	return d
})

// numbered is n more entries of a query.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "&k%d=1", i)
	}
	return b.String()
}

// send returns the status of an answer and the field of its problem, - if it is
// none.
func (s *siege) send(t *testing.T, path, body string) (status int, field string) {
	t.Helper()
	method := http.MethodPost
	if strings.HasPrefix(path, "/v1/auth") {
		method = http.MethodGet
	}
	r, err := http.NewRequest(method, s.url()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range described().Check(r, []byte(body), got, text) {
		t.Error(wrong)
	}
	if path == "/json" {
		return got.StatusCode, ""
	}
	var p struct {
		Field  string `json:"field"`
		Detail string `json:"detail"`
	}
	if got.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(text, &p) != nil {
		return got.StatusCode, "-"
	}
	if len(text) > 1000 {
		t.Errorf("a problem of %d bytes repeats the request: %.100s", len(text), text)
	}
	return got.StatusCode, p.Field
}

// TestHostileHeaders sends more headers than anybody needs.
func TestHostileHeaders(t *testing.T) {
	s := besiege(t)
	const question = "GET /v1/auth?domain=hostile&victim=1"
	for name, request := range map[string]string{
		"many":  question + " HTTP/1.1\r\nHost: weir\r\n" + strings.Repeat("X-A: 1\r\n", 10000),
		"long":  question + " HTTP/1.1\r\nHost: weir\r\nX-A: " + strings.Repeat("1", 1<<20) + "\r\n",
		"query": question + strings.Repeat("1", 1<<20) + " HTTP/1.1\r\nHost: weir\r\n",
	} {
		conn := connect(t, s.addr)
		go func() {
			fmt.Fprintf(conn, "%s\r\n", request)
		}()
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.Body.Close()
		if got.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: got %d, want 431", name, got.StatusCode)
		}
	}
	s.uncharged()
}
