package server

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/fuzztest"
)

// FuzzStoreURL: however a URL is spelled, what is said of it does not repeat the
// password, not even one that was not percent-encoded.
func FuzzStoreURL(f *testing.F) {
	const secret = "CANARY"
	for _, s := range []string{"redis://u:", "rediss+cluster://:", "redis+sentinel://u:", "unix://:", "redis://h?sentinel_password=", "redis+sentinel://m@h?sentinel_password="} {
		f.Add(s, "", "", "h:1,h:2/0?pool_size=2")
	}
	f.Add("redis+cluster://u:", "pa/", "", "h")
	f.Add("redis:/u:", "", "", "h:1")
	f.Add("redis:///u:", "", "", "h:1")
	f.Add("redis://u:", "12/", "", "h")
	f.Add("redis://u:", "1?", "", "h?read_timeout=1")
	f.Add("redis+sentinel://u:", "a@", "", "h")
	f.Add("redis+sentinel://m@h?sentinel_password=", "a&", "", "")
	f.Add("redis+sentinel://m@h?sentinel_password=", "&", "", "")
	f.Fuzz(func(t *testing.T, before, left, right, hosts string) {
		before, hosts = strings.ReplaceAll(before, secret, "-"), strings.ReplaceAll(hosts, secret, "-")
		end := ""
		_, query, _ := strings.Cut(before, "?")
		if !strings.HasSuffix("&"+query, "&sentinel_password=") {
			// After an @ or a ? there is no place for a password.
			before = strings.TrimSuffix(strings.NewReplacer("@", "", "?", "").Replace(before), ":") + ":"
			end = "@"
			if strings.Contains(before, "sentinel:") {
				end = "@m@"
			}
		}
		raw := before + left + secret + right + end + hosts
		fuzztest.Within(t, fuzztest.MostBytes, len(raw), func() {
			to, err := parseTarget(raw)
			if err != nil {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", raw, err)
				}
				return
			}
			if told := describe(raw); strings.Contains(told, secret) || strings.Contains(strings.Join(to.addrs, " ")+to.Addr, secret) {
				t.Errorf("%q is told as %q, and connects to %q and %q", raw, told, to.Addr, to.addrs)
			}
		})
	})
}

// FuzzTokenFile: a file's tokens are those on its lines, all of them or none, and what
// is wrong with it is told without them.
func FuzzTokenFile(f *testing.F) {
	f.Add([]byte("0123456789abcdef\n\n  fedcba9876543210\r\n"))
	f.Add([]byte("short\n"))
	f.Add([]byte("0123456789abcdef\x00\n\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			known, err := (&tokens{file: "f", least: minToken}).parse(text)
			if err != nil {
				for word := range strings.FieldsSeq(string(text)) {
					if len(word) >= minToken && strings.Contains(err.Error(), word) {
						t.Errorf("%q: %v", text, err)
					}
				}
				return
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" {
					if known[n] != sha256.Sum256([]byte(line)) {
						t.Errorf("%q: token %d is not %q", text, n, line)
					}
					n++
				}
			}
			if n != len(known) {
				t.Errorf("%q: %d tokens", text, len(known))
			}
		})
	})
}

// FuzzAuthorization: who does not say the token is not let in, however it is said.
func FuzzAuthorization(f *testing.F) {
	const token = "0123456789abcdef"
	f.Add("Bearer "+token, "")
	f.Add("Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm", "")
	f.Add("bearer\t"+token, "Bearer x")
	f.Add("Basic Og==", "")
	known, err := (&tokens{file: "f", least: minToken}).parse([]byte(token))
	if err != nil {
		f.Fatal(err)
	}
	list := &tokens{file: "f", logger: slog.New(slog.DiscardHandler)}
	list.known.Store(&known)
	list.checked.Store(1 << 62) // the file is not looked at again
	entered := false
	door := list.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered = true }))
	f.Fuzz(func(t *testing.T, header, second string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/auth", nil)
		r.Header["Authorization"] = []string{header}
		if second != "" {
			r.Header["Authorization"] = append(r.Header["Authorization"], second)
		}
		_, password, _ := r.BasicAuth()
		scheme, said, _ := strings.Cut(header, " ")
		want := second == "" && (password == token || strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(said) == token)
		fuzztest.Within(t, fuzztest.MostBytes, len(header)+len(second), func() {
			entered = false
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			if entered != want || entered == (w.Code == http.StatusUnauthorized) {
				t.Errorf("%q, %q: entered %v, status %d", header, second, entered, w.Code)
			}
		})
	})
}
