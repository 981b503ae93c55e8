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
