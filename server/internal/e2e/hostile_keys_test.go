package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testserver"
)

// TestHostileKeys asks about values that other limiters take for one another, or
// for a part of their own keys: each has its budget of one, on Redis, by HTTP and
// RESP alike, and none is an error.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	w := serve(t, "testdata/hostile.yaml", testserver.StartRedis(t).URL(), "--resp", "127.0.0.1:0", "--timeout", "4s")
	s := &siege{t: t, client: newClient(t), weir: w}
	values := []string{
		"", "a", "A", "a ", " a", "a_b", "a:b", "{", "}", "}x", "{}", "{a}", "{a}b", "a{b}c", "once", "once_a", "once=a", "*", "a*",
		"\x00", "a\x00", "\xff", "\xff\xfe", "a\r\n", "a\r\nb", "\n", "\t", "é", "e\u0301", "%", "%25", "%00", "a&cost=0", "&", "=", "+", "%2B",
		"1", "01", "1.0", "1e0", "nan", "inf", "-1", "9007199254740993", "'", `"`, `\`, "$(id)", "${jndi:x}", "../../x", "<script>",
		strings.Repeat("x", 1024), strings.Repeat("x", 1023) + "y", strings.Repeat("}", 1024), strings.Repeat("\x00", 1024),
	}
	for _, value := range values {
		for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
			got, err := s.client.Get(s.url() + "/v1/auth?domain=hostile&once=" + url.QueryEscape(value))
			if err != nil {
				t.Fatal(err)
			}
			got.Body.Close()
			if got.StatusCode != want {
				t.Errorf("%.40q: got %d, want %d", value, got.StatusCode, want)
			}
		}
	}
	conn := connect(t, s.resp)
	for _, value := range values {
		for _, want := range []string{"*5\r\n:0\r\n", "*5\r\n:1\r\n"} {
			fmt.Fprintf(conn, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$1\r\n0\r\n$1\r\n1\r\n$5\r\n86400\r\n", len(value), value)
			answer := make([]byte, 0, 100)
			for strings.Count(string(answer), "\n") < 6 && !strings.HasPrefix(string(answer), "-") {
				n, err := conn.Read(answer[len(answer):cap(answer)])
				if err != nil {
					t.Fatalf("%.40q: %v", value, err)
				}
				answer = answer[:len(answer)+n]
			}
			if !strings.HasPrefix(string(answer), want) {
				t.Errorf("%.40q: got %q, want %q…", value, answer, want)
			}
		}
	}
}
