// Package h2spec runs the conformance suite of that name against the listener on
// bare frames. It is a module of its own, so that nobody who uses Weir depends on
// the suite.
package h2spec

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/weirlimit/weir/server/internal/frames"
)

// cases is how many the suite has.
const cases = 146

func TestPlain(t *testing.T) { run(t, nil) }

func TestTLS(t *testing.T) {
	// The certificate of a server that never serves.
	donor := httptest.NewUnstartedServer(nil)
	donor.EnableHTTP2 = true
	donor.StartTLS()
	defer donor.Close()
	run(t, &tls.Config{Certificates: donor.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
}

// run runs every case. The suite keeps its state in variables, so it runs alone.
func run(t *testing.T, secret *tls.Config) {
	server, err := frames.New(frames.Options{TLS: secret})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		if err := server.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != frames.ErrStopped {
			t.Error(err)
		}
	}()
	c := &config.Config{
		Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, Path: "/", Strict: true,
		Timeout: 5 * time.Second, MaxHeaderLen: 4000, TLS: secret != nil, Insecure: true,
	}
	passed := 0
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		passed += group.PassedCount
		report(t, group)
	}
	if passed != cases {
		t.Errorf("%d of %d cases passed", passed, cases)
	}
}

func report(t *testing.T, group *spec.TestGroup) {
	for _, tc := range group.Tests {
		switch {
		case tc.Result == nil:
			t.Errorf("%s: not run", tc.Desc)
		case tc.Result.Failed:
			t.Errorf("%s: %s: %v", group.ID(), tc.Desc, tc.Result.Error)
		case tc.Result.Skipped:
			t.Errorf("%s: %s: skipped", group.ID(), tc.Desc)
		}
	}
	for _, inner := range group.Groups {
		report(t, inner)
	}
}
