package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
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
		o = o.withDefaults()
		o.warnOfOpenListeners(t.Context())
		said := log.String()
		if n := strings.Count(said, "\n"); n != len(test.want) {
			t.Errorf("%s: %d lines: %s", name, n, said)
		}
		for _, listener := range test.want {
			want := `msg="a listener serves everybody who reaches it" listener=` + listener
			flags := `want="--` + listener + "-token-file, --" + listener + `-tls-client-ca or a loopback address"`
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
