package app

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/callers"
)

// TestOpenListeners: the log names each listener that other machines reach and that
// asks them for nothing, and the flags that change it.
func TestOpenListeners(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options Options
		want    []string // listeners
	}{
		"loopback":            {Options{HTTP: "127.0.0.1:0", GRPC: "[::1]:0", RESP: "localhost:0"}, nil},
		"a socket":            {Options{GRPC: "unix:/run/weir"}, nil},
		"every interface":     {Options{HTTP: ":8080", GRPC: "0.0.0.0:8081"}, []string{"http", "grpc"}},
		"an address":          {Options{GRPC: "10.0.0.1:8081"}, []string{"grpc"}},
		"a name":              {Options{HTTP: "weir.internal:8080"}, []string{"http"}},
		"tokens":              {Options{HTTP: ":8080", HTTPTokenFile: "tokens", GRPC: ":8081", GRPCTokenFile: "tokens"}, nil},
		"client certificates": {Options{HTTP: ":8080", HTTPTLS: TLS{Cert: "c", Key: "k", ClientCA: "ca"}}, nil},
		"TLS alone":           {Options{HTTP: ":8080", HTTPTLS: TLS{Cert: "c", Key: "k"}}, []string{"http"}},
		"off":                 {Options{GRPC: "off"}, nil},
	} {
		var log bytes.Buffer
		o := test.options
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		_ = o.complete()
		o.warnOfOpenListeners(t.Context())
		said := log.String()
		if n := strings.Count(said, "\n"); n != len(test.want) {
			t.Errorf("%s: %d lines: %s", name, n, said)
		}
		for _, listener := range test.want {
			want := `msg="a listener serves everybody who reaches it" listener=` + listener
			flags := `want="--` + listener + "-token-file, --callers, --" + listener + `-tls-client-ca or a loopback address"`
			if !strings.Contains(said, want) || !strings.Contains(said, flags) {
				t.Errorf("%s: want %s and %s in %s", name, want, flags, said)
			}
		}
	}
}

// TestOpenListenersAtStart: a start says it.
func TestOpenListenersAtStart(t *testing.T) {
	t.Parallel()
	var log lines
	start(t, Options{GRPC: "0.0.0.0:0", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if said := log.String(); strings.Count(said, "serves everybody") != 1 || !strings.Contains(said, "listener=grpc address=0.0.0.0:0") {
		t.Errorf("logged: %s", said)
	}
}

// TestGuessesAreCounted at every listener, and end the connection that they come on.
func TestGuessesAreCounted(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, oldToken)
	app := start(t, Options{
		HTTPTokenFile: file, GRPCTokenFile: file, RESP: "127.0.0.1:0", RESPPasswordFile: file,
		Admin: AdminOptions{Address: "127.0.0.1:0", TokenFile: file},
	})
	for listener, path := range map[string]string{"http": "/v1/auth?domain=demo&user=a", "admin": "/v1/rules"} {
		conn := connect(t, addrOf(app, listener))
		guess := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-guess\r\n"
		// From the second guess on net/http has the connection.
		fmt.Fprint(conn, guess+"\r\n"+strings.Repeat(guess+"Pragma: no-cache\r\n\r\n", 99))
		text, _ := io.ReadAll(conn)
		if n := strings.Count(string(text), "HTTP/1.1 401 "); n != callers.MaxFailures || !strings.Contains(string(text), "Connection: close") {
			t.Errorf("%s: %d guesses on a connection", listener, n)
		}
	}
	if got := say(t, app, strings.Repeat("AUTH a-guess\r\n", 100)); strings.Count(got, "WRONGPASS") != callers.MaxFailures {
		t.Errorf("resp: %q", got)
	}
	guessRPC(t, addrOf(app, "grpc"))
	guessRPC(t, addrOf(app, "grpc"), grpc.UseCompressor(gzip.Name))
	_, text := get(t, app, "/metrics", "Authorization: Bearer "+oldToken)
	for _, listener := range []string{"http", "admin", "resp", "grpc"} {
		connections := map[bool]int{true: 2, false: 1}[listener == "grpc"]
		if want := fmt.Sprintf("weir_auth_failures_total{listener=%q} %d\n", listener, connections*callers.MaxFailures); !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// guessRPC guesses until the server closes the connection.
func guessRPC(t *testing.T, address string, options ...grpc.CallOption) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(t.Context(), state) {
			t.Fatal("no connection")
		}
	}
	ctx := bearer(t, "a-guess")
	for range callers.MaxFailures {
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{}, options...); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	if !conn.WaitForStateChange(t.Context(), connectivity.Ready) {
		t.Error("the connection is not closed")
	}
}

// TestShortSecrets: a password that can be guessed is for this machine alone.
func TestShortSecrets(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, "x\n")
	for address, good := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "[::]:0": false} {
		o := Options{RESP: address, RESPPasswordFile: file, InsecureToken: true}
		if good {
			wantGood(t, address, o)
		} else {
			wantInvalid(t, address, o, "resp password file", "16")
		}
	}
}

// TestClearText: secrets cross the network over TLS, or where the operator says that
// something else encrypts the connections.
func TestClearText(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, oldToken)
	authority := newIssuer(t)
	cert, key := authority.pair("weir.test")
	secured := TLS{Cert: cert, Key: key}
	for name, test := range map[string]struct {
		field string // empty: it starts
		flag  string
		Options
	}{
		"http":             {"http token file", "--http-tls-cert", Options{HTTP: ":0", HTTPTokenFile: file}},
		"grpc":             {"grpc token file", "--grpc-tls-cert", Options{GRPC: "10.0.0.1:0", GRPCTokenFile: file}},
		"resp":             {"resp password file", "--resp-tls-cert", Options{RESP: "0.0.0.0:0", RESPPasswordFile: file}},
		"admin":            {"admin token file", "--admin-tls-cert", Options{Admin: AdminOptions{Address: "[::]:0", TokenFile: file}}},
		"http, TLS":        {"", "", Options{HTTP: ":0", HTTPTokenFile: file, HTTPTLS: secured}},
		"grpc, TLS":        {"", "", Options{GRPC: ":0", GRPCTokenFile: file, GRPCTLS: secured}},
		"resp, TLS":        {"", "", Options{RESP: ":0", RESPPasswordFile: file, RESPTLS: secured}},
		"admin, TLS":       {"", "", Options{Admin: AdminOptions{Address: ":0", TokenFile: file, TLS: secured}}},
		"http, a mesh":     {"", "", Options{HTTP: ":0", HTTPTokenFile: file, InsecureToken: true}},
		"grpc, a mesh":     {"", "", Options{GRPC: ":0", GRPCTokenFile: file, InsecureToken: true}},
		"resp, a mesh":     {"", "", Options{RESP: ":0", RESPPasswordFile: file, InsecureToken: true}},
		"admin, a mesh":    {"", "", Options{Admin: AdminOptions{Address: ":0", TokenFile: file}, InsecureToken: true}},
		"loopback":         {"", "", Options{HTTPTokenFile: file, GRPCTokenFile: file, RESP: "127.0.0.1:0", RESPPasswordFile: file}},
		"a socket":         {"", "", Options{GRPC: "unix:/run/weir", GRPCTokenFile: file}},
		"nothing secret":   {"", "", Options{HTTP: ":0", GRPC: ":0"}},
		"off":              {"", "", Options{GRPC: "off", GRPCTokenFile: file}},
		"certificates":     {"", "", Options{RESP: ":0", RESPTLS: TLS{Cert: cert, Key: key, ClientCA: authority.file}}},
		"a key is lacking": {"resp tls key", "PEM", Options{RESP: "127.0.0.1:0", RESPTLS: TLS{Cert: cert}}},
	} {
		if test.field == "" {
			wantGood(t, name, test.Options)
			continue
		}
		wantInvalid(t, name, test.Options, test.field, test.flag)
		if test.flag != "PEM" {
			wantInvalid(t, name, test.Options, test.field, "--insecure-token")
		}
	}
}

// TestRESPOverTLS: Redis clients speak TLS where the listener does, and no client that
// does not keeps others from connecting.
func TestRESPOverTLS(t *testing.T) {
	t.Parallel()
	authority := newIssuer(t)
	cert, key := authority.pair("weir.test")
	app := start(t, Options{
		RESP: "0.0.0.0:0", RESPMaxConnections: 1, RESPTLS: TLS{Cert: cert, Key: key}, RESPPasswordFile: passwordFile(t, oldToken),
	})
	_, port, err := net.SplitHostPort(addrOf(app, "resp"))
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	connect(t, address) // and say nothing: it never begins a handshake, and makes room
	conn, err := tls.Dial("tcp", address, authority.client(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "AUTH %s\r\nCL.THROTTLE a 0 1 60\r\n", oldToken)
	want := "+OK\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n"
	text := make([]byte, len(want))
	if _, err := io.ReadFull(conn, text); string(text) != want {
		t.Fatalf("%q, %v", text, err)
	}
	extra := connect(t, address)
	_ = extra.SetDeadline(time.Now().Add(5 * time.Second))
	// One too many is hung up on, though it never begins a handshake.
	if _, err := io.Copy(io.Discard, extra); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one too many is kept waiting")
	}
}

// FuzzAuthorization: a request without the token is refused, whatever its header has.
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

// TestLinesAreSeldom: clients that break their handshakes or guess tokens cause a line a second.
func TestLinesAreSeldom(t *testing.T) {
	t.Parallel()
	cert, key := newIssuer(t).pair("weir.test")
	var log lines
	app := start(t, Options{
		HTTPTLS: TLS{Cert: cert, Key: key}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Admin: AdminOptions{Address: "127.0.0.1:0", TokenFile: passwordFile(t, oldToken)},
	})
	const clients = 100
	begun := time.Now()
	for range clients {
		conn := connect(t, addrOf(app, "http"))
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the server hangs up
		conn.Close()
		send(t, app, "admin", http.MethodPost, "/dashboard/login", "token=wrong", "Content-Type: application/x-www-form-urlencoded")
	}
	log.await(t, "TLS handshake error")
	most := 2 + int(time.Since(begun)/time.Second)
	for _, text := range []string{"handshake error", "a login was refused", "callers show secrets that are wrong"} {
		if n := strings.Count(log.String(), text); n == 0 || n > most {
			t.Errorf("%q: %d lines in %v", text, n, time.Since(begun))
		}
	}
}
