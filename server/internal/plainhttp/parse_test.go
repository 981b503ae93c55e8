package plainhttp

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// read reads the request that in begins with, as a connection does.
func read(in []byte) (r *http.Request, body []byte, size int, found verdict) {
	c := &conn{in: in}
	if found = c.examine(); found != whole {
		return nil, nil, 0, found
	}
	r = new(http.Request)
	c.head.fill(r, new(url.URL))
	size = c.size + max(c.head.length, 0)
	return r, in[c.size:size], size, whole
}

// FuzzParse: net/http reads each request that is accepted as the same request, of the same
// size, and its server accepts it, too.
func FuzzParse(f *testing.F) {
	for _, s := range odd {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, body, size, found := read(in)
		if found != whole {
			return
		}
		src := bytes.NewReader(in)
		br := bufio.NewReaderSize(src, 16)
		want, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		wantBody, err := io.ReadAll(want.Body)
		if err != nil {
			t.Fatalf("the body in net/http: %v", err)
		}
		if used := len(in) - src.Len() - br.Buffered(); used != size || !bytes.Equal(body, wantBody) {
			t.Fatalf("%d bytes with body %q, in net/http %d with %q", size, body, used, wantBody)
		}
		for _, x := range []struct{ got, want any }{
			{got.Method, want.Method},
			{got.URL, want.URL},
			{got.Proto, want.Proto},
			{[]int{got.ProtoMajor, got.ProtoMinor}, []int{want.ProtoMajor, want.ProtoMinor}},
			{got.Header, want.Header},
			{got.ContentLength, want.ContentLength},
			{got.TransferEncoding, want.TransferEncoding},
			{got.Close, want.Close},
			{got.Host, want.Host},
			{got.RequestURI, want.RequestURI},
			{got.Trailer, want.Trailer},
		} {
			if !reflect.DeepEqual(x.got, x.want) {
				t.Fatalf("%#v, in net/http %#v", x.got, x.want)
			}
		}
	})
}

// FuzzParts: a request that comes in parts is the same as one that comes at once.
func FuzzParts(f *testing.F) {
	for _, s := range odd {
		f.Add([]byte(s), uint16(len(s)/2))
	}
	f.Fuzz(func(t *testing.T, in []byte, at uint16) {
		in = in[:min(len(in), maxRequest)] // what a connection holds at most
		_, _, size, found := read(in)
		c := &conn{in: in[:min(int(at), len(in))]}
		first := c.examine()
		if first == whole && found != whole || first == foreign && found == whole {
			t.Fatalf("%d after %d bytes, %d after all", first, at, found)
		}
		if c.in = in; first != partial {
			return
		}
		if second := c.examine(); second != found || found == whole && c.size+max(c.head.length, 0) != size {
			t.Fatalf("%d in parts, %d at once", second, found)
		}
	})
}

// FuzzAfter: a request means the same after another one as on a connection of its own.
func FuzzAfter(f *testing.F) {
	for i, s := range odd {
		f.Add([]byte(odd[i/2]), []byte(s))
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, before, in []byte) {
		after := &conn{in: before}
		if after.examine() != whole {
			return
		}
		after = &conn{in: in, last: after.head.fields}
		alone := &conn{in: in}
		want := alone.examine()
		if got := after.examine(); got != want || after.size != alone.size {
			t.Fatalf("%d with a head of %d bytes, alone %d with %d", got, after.size, want, alone.size)
		}
		if want != whole {
			return
		}
		var got, is http.Request
		after.head.fill(&got, new(url.URL))
		alone.head.fill(&is, new(url.URL))
		if !reflect.DeepEqual(&got, &is) {
			t.Fatalf("%+v, alone %+v", got, is)
		}
	})
}

func get(target string, fields ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(fields, "", ""), "\r\n")
}

func take(body string, fields ...string) string {
	return "POST /v1/take HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(fields, "", ""), "\r\n") + body
}

// odd are requests at and beyond the edge of what is read here.
var odd = func() []string {
	const ask, chunked = "/v1/auth?a=b", "Transfer-Encoding: chunked"
	head := func(line string) string { return line + "\r\nHost: localhost\r\n\r\n" }
	all := []string{
		// Usual ones.
		get(ask), get(ask, "Accept: */*", "User-Agent: curl/8"), get(ask) + get("/v1/auth?c=d"), take("{}", "Content-Length: 2"),
		take("{}", "Content-Length: 2", "Content-Type: application/json", "Authorization: Bearer secret"),
		strings.Replace(take("{}", "Content-Length: 2"), "take", "settle", 1), strings.Replace(take("{}", "Content-Length: 2"), "take", "release", 1),
		get(ask, "Connection: close"), get(ask, "Connection: Keep-Alive"), take("", "Content-Length: 0"), get(ask, "Content-Length: 0"),
		// Lines.
		head("GET /v1/auth HTTP/1.1"), head("GET /v1/auth? HTTP/1.1"), head("GET /v1/auth?a=b HTTP/1.0"), head("GET /v1/auth?a=b HTTP/1.2"),
		head("GET /v1/auth?a=b HTTP/2.0"), head("GET  /v1/auth?a=b HTTP/1.1"), head("GET /v1/auth?a=b  HTTP/1.1"), head("GET /v1/auth?a=b HTTP/1.1 "),
		head("GET /v1/auth?a=b c HTTP/1.1"), head("GET\t/v1/auth?a=b HTTP/1.1"), head("get /v1/auth?a=b HTTP/1.1"), head("GET /v1/auth?a=b"),
		head("GET /v1/auth?a=b#c HTTP/1.1"), head("GET /v1/auth?a=\x00 HTTP/1.1"), head("GET /v1/auth?a=\xff HTTP/1.1"), head("GET /v1/auth?a=%zz HTTP/1.1"),
		head("GET /v1/auth?a=%00%0d%0a HTTP/1.1"), head(`GET /v1/auth?a="<>\^{|} HTTP/1.1`), head("GET //v1/auth?a=b HTTP/1.1"), head("GET /v1/auth/?a=b HTTP/1.1"),
		head("GET /v1/../v1/auth?a=b HTTP/1.1"), head("GET /v1/%61uth?a=b HTTP/1.1"), head("GET http://localhost/v1/auth?a=b HTTP/1.1"),
		head("GET http://other/v1/auth?a=b HTTP/1.1"), head("HEAD /v1/auth?a=b HTTP/1.1"), head("OPTIONS * HTTP/1.1"), head("CONNECT localhost:80 HTTP/1.1"),
		head("POST /v1/auth?a=b HTTP/1.1"), head("GET /v1/take HTTP/1.1"), head("POST /v1/take?a=b HTTP/1.1"), head("GET /other HTTP/1.1"), head("GET /v1/auth?a=b&a=c;d HTTP/1.1"),
		"\r\n" + get(ask), "\n" + get(ask), " " + get(ask), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", "*1\r\n$4\r\nPING\r\n",
		strings.ReplaceAll(get(ask), "\r\n", "\n"), strings.ReplaceAll(get(ask), "\r\n", "\r"), strings.Replace(get(ask), "\r\n\r\n", "\n\r\n", 1), strings.Replace(get(ask), "\r\n\r\n", "\r\n\n", 1),
		// Host.
		"GET /v1/auth?a=b HTTP/1.1\r\n\r\n", "GET /v1/auth?a=b HTTP/1.1\r\nHost:\r\n\r\n", get(ask, "Host: localhost"), get(ask, "host: other"),
		"GET /v1/auth?a=b HTTP/1.1\r\nHost: a b\r\n\r\n", "GET /v1/auth?a=b HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET /v1/auth?a=b HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
		"GET /v1/auth?a=b HTTP/1.1\r\nhOST:\t localhost \t\r\n\r\n", "GET /v1/auth?a=b HTTP/1.1\r\nHost : localhost\r\n\r\n", "GET /v1/auth?a=b HTTP/1.1\r\n Host: localhost\r\n\r\n",
		// Fields.
		get(ask, "A: b", " c"), get(ask, "A: b", "\tc"), get(ask, "A b: c"), get(ask, "A : b"), get(ask, ": b"), get(ask, "A"), get(ask, "A:"), get(ask, "A:\t b\t "),
		get(ask, "A: \x00"), get(ask, "A: \x01"), get(ask, "A: \x7f"), get(ask, "A: \x80\xff"), get(ask, "A: b\rc"), get(ask, "\xc3\xa4: b"), get(ask, "a_b: c", "A-b: c", "a-B: d"),
		get(ask, "Accept: a", "ACCEPT: b"), get(ask, "Authorization: Bearer secret", "Authorization: Bearer other"), get(ask, "Cookie: a=b;c"), get(ask, "(): b"),
		get(ask, strings.Repeat("A: b\r\n", 63)+"A: b"), get(ask, strings.Repeat("A: b\r\n", 80)+"A: b"), get(ask, "A: "+strings.Repeat("b", 9000)), get(ask + strings.Repeat("c", 9000)),
		get(ask, "Pragma: no-cache"), get(ask, "Pragma: no-cache", "Cache-Control: max-age=1"), get(ask, "Te: trailers"), get(ask, "Sec-Fetch-Site: cross-site", "Origin: http://other"),
		take("{}", "Content-Length: 2", "Sec-Fetch-Site: cross-site"), take("{}", "Content-Length: 2", "Origin: http://other"),
		// Connections.
		get(ask, "Connection: close, keep-alive"), get(ask, "Connection: keep-alive", "Connection: close"), get(ask, "Connection:"), get(ask, "Connection: CLOSE"), get(ask, "Connection: a, close"),
		get(ask, "Connection: Upgrade", "Upgrade: websocket"), get(ask, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__"), get(ask, "Expect: 100-continue"),
		// Lengths.
		take("{}", "Content-Length: 2", "Content-Length: 2"), take("{}", "Content-Length: 2", "Content-Length: 3"), take("{}", "Content-Length: 2, 2"), take("{}", "Content-Length: +2"),
		take("{}", "Content-Length: -2"), take("{}", "Content-Length: 02"), take("{}", "Content-Length: 0x2"), take("{}", "Content-Length: 2 "), take("{}", "Content-Length: 2\t"), take("{}", "Content-Length:"),
		take("{}", "Content-Length: \xb2"), take("{}", "content-length: 2"), take("{}", "Content_Length: 2"), take("{}", "Content-Length: 99999999999999999999"), take("{}", "Content-Length: 2;"),
		take("{}"), take("{}x", "Content-Length: 2"), take("{}GET ", "Content-Length: 2"), take("{", "Content-Length: 2"), get(ask, "Content-Length: 2") + "{}", take(strings.Repeat(" ", 8000)+"{}", "Content-Length: 8002"),
		take("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), take("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Length: 2"), take("{}", "Content-Length: 2", "Transfer-Encoding: identity"),
		take("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding : chunked"), take("2\r\n{}\r\n0\r\n\r\n", "transfer-encoding: xchunked"), take("2\r\n{}\r\n0\r\nA: b\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: A"),
		take("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked, chunked"), take("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding:\x0bchunked"), take("{}", "Content-Length: 2", "Expect: 100-continue"), take("{}", "Content-Length: 2", "Trailer: A"),
		// Chunks.
		take("2;a=b\r\n{}\r\n0\r\n\r\n", chunked), take("2;"+strings.Repeat("a", 5000)+"\r\n{}\r\n0\r\n\r\n", chunked), take("0002\r\n{}\r\n000\r\n\r\n", chunked), take("2\n{}\n0\n\n", chunked),
		take("2\r\n{}0\r\n\r\n", chunked), take("-2\r\n{}\r\n0\r\n\r\n", chunked), take("0x2\r\n{}\r\n0\r\n\r\n", chunked), take("ffffffffffffffff2\r\n{}\r\n0\r\n\r\n", chunked), take("3\r\n{}\r\n0\r\n\r\n", chunked),
		take("2\r\n{}\r\n", chunked), take("2 \r\n{}\r\n0\r\n\r\n", chunked), take("1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", chunked) + get(ask), take("0\r\n\r\n", chunked) + get(ask), take("0\r\nContent-Length: 2\r\n\r\n", chunked) + get(ask),
		take("0\r\n\r\n"+get(ask), "Content-Length: 5", chunked), take("0\r\n\r\n", chunked, "Content-Length: 5"), take("0\r\n\r\n", "Transfer-Encoding: \r\n chunked"), take("0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
		take("0\r\n\r\n", "Transfer-Encoding: gzip, chunked"), take("0\r\n\r\n", "TRANSFER-ENCODING: CHUNKED"), take("0\r\n\r\n", "Transfer-Encoding: \"chunked\""), get(ask, chunked) + "0\r\n\r\n", get(ask, chunked) + get(ask),
		// Expectations.
		take("{}", "Content-Length: 2", "Expect: 100-Continue"), take("{}", "Content-Length: 2", "Expect: 200-ok"), take("{}", "Content-Length: 2", "Expect:"), take("", "Content-Length: 2", "Expect: 100-continue"), take("{}", "Expect: 100-continue"),
		take("2\r\n{}\r\n0\r\n\r\n", chunked, "Expect: 100-continue"), take("{}", "Content-Length: 2", "Expect: 100-continue", "Expect: 100-continue"),
		// Lengths and lines that go on in the next one.
		take("{}", "Content-Length:\r\n 2"), take("{}", "Content-Length: 2\r\n 0"), take("{}", "A: b\r\n Content-Length: 2"), take("{}", "Content-Length: 2", "\tContent-Length: 3"), take("{}", " Content-Length: 2"),
		get(ask, "A: b\r\n\tc\r\n d"), get(ask, "Authorization: Bearer\r\n secret"), get(ask, "Connection:\r\n close"), take("{}", "Content-Length: 2\r"), take("{}", "Content-Length: 2\n"), take("{}", "Content-Length: 2\nA: b"),
		take("{}", "Content-Length: 2\x00"), take("{}", "Content-Length\x00: 2"), take("{}", "Content-Length: 2\x0b"), take("{}", "Content-Length: 2\x0c"), take("{}", "Content-Length\t: 2"), take("{}", "\x00"), get(ask, "A\x00: b"),
		// Targets in the absolute form.
		head("GET https://localhost/v1/auth?a=b HTTP/1.1"), head("GET HTTP://localhost/v1/auth?a=b HTTP/1.1"), head("GET http://a:b@localhost/v1/auth?a=b HTTP/1.1"), head("GET http:///v1/auth?a=b HTTP/1.1"),
		head("GET http://localhost?a=b HTTP/1.1"), head("GET ws://localhost/v1/auth?a=b HTTP/1.1"), "POST http://other/v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", head("GET localhost/v1/auth?a=b HTTP/1.1"),
		// Long ones.
		get(ask, "A: "+strings.Repeat("b", 90<<10)), get(ask, strings.Repeat("a", 9000)+": b"), head(strings.Repeat("G", 9000) + " /v1/auth?a=b HTTP/1.1"), get(ask, strings.Repeat("A: b\r\n", 5000)+"A: b"), head("GET /v1/auth?a=b HTTP/1." + strings.Repeat("1", 9000)),
		take(strings.Repeat(" ", 20000)+"{}", "Content-Length: 20002") + get(ask), strings.Repeat("\r\n", 100) + get(ask), get(ask) + strings.Repeat("\r\n", 5000),
		// Cut short.
		"G", "GET /v1/auth", "GET /v1/auth?a=b HTTP/1.1\r", "GET /v1/auth?a=b HTTP/1.1\r\n", "GET /v1/auth?a=b HTTP/1.1\r\nHost: localhost\r\n\r", "GET /v1/auth?a=b HTTP/1.1\r\nHost: loc", "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n",
		// Several.
		strings.Repeat(get(ask), 40), strings.Repeat(take("{}", "Content-Length: 2"), 40), take("{}", "Content-Length: 2") + take("2\r\n{}\r\n0\r\n\r\n", chunked) + take("{}", "Content-Length: 2"), take("{}", "Content-Length: 0") + get(ask),
		take(get("/v1/auth?hidden"), "Content-Length: 5") + get(ask), take("{}", "Content-Length: 2", "Connection: close") + get(ask), get(ask, "Content-Length: 0") + get(ask), get(ask) + head("GET /v1/auth?a=b HTTP/1.0") + get(ask),
		get(ask) + take("{}", "Content-Length: 2") + get(ask, "Connection: close") + get(ask), get(ask) + head("GET /other HTTP/1.1") + get(ask), take("{}", "Content-Length: 2") + "\r\n" + get(ask), get(ask) + "x",
	}
	return all
}()
