package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/fuzztest"
	"github.com/weirlimit/weir/server/internal/callers"
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

// FuzzAuthorization: who does not say the token is not let in, however it is said.
func FuzzAuthorization(f *testing.F) {
	const token = "0123456789abcdef"
	f.Add("Bearer "+token, "")
	f.Add("Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm", "")
	f.Add("bearer\t"+token, "Bearer x")
	f.Add("Basic Og==", "")
	file := filepath.Join(f.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		f.Fatal(err)
	}
	secrets, err := callers.SecretsFile{Setting: "http token file", File: file, Least: callers.MinSecret}.Open()
	if err != nil {
		f.Fatal(err)
	}
	entered := false
	listener := requireToken(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered = true }), callers.New(callers.Options{Listener: "http", Secrets: secrets}))
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
			listener.ServeHTTP(w, r)
			if entered != want || entered == (w.Code == http.StatusUnauthorized) {
				t.Errorf("%q, %q: entered %v, status %d", header, second, entered, w.Code)
			}
		})
	})
}
