package cli

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var adminLine = regexp.MustCompile(`(?m)^admin (\S+)\n`)

func (s *session) admin(ts *testscript.TestScript, _ []string) {
	address := s.await(ts, &s.stdout, adminLine)[1]
	ts.Setenv("ADMIN", address)
	ts.Setenv("WEIR_ADMIN", address)
}

// TestKeyOverTLS: a certificate that is not known is not trusted, and neither is one
// where none was asked for.
func TestKeyOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"passes":true,"limits":[{"explanation":"well\u001b[2J"}]}`)
	}))
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(server.URL, "https://")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--admin", address, "--admin-ca", ca}, ExitOK, "well\ufffd[2J\n"},
		{[]string{"--admin", server.URL, "--admin-ca", ca}, ExitOK, "well"},
		{[]string{"--admin", server.URL}, ExitUsage, "certificate"},
		{[]string{"--admin", server.URL, "--admin-ca", ca + ".none"}, ExitUsage, "admin ca"},
		{[]string{"--admin", server.URL, "--admin-cert", ca}, ExitUsage, "admin cert"},
		{[]string{"--admin", address}, ExitUsage, "400 Bad Request"},
	} {
		var said bytes.Buffer
		code := Execute(context.Background(), append([]string{"key", "get", "shop", "user=1"}, test.args...), &said, &said)
		if code != test.code || !strings.Contains(said.String(), test.says) {
			t.Errorf("%v: exit code %d, said %q; want %d, %q", test.args, code, &said, test.code, test.says)
		}
	}
}
