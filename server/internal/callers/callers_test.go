package callers

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailuresAreSeen: each wrong secret is counted, and the log has one line a second
// with how many there were, without the secrets.
func TestFailuresAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secrets, _ := secretsOf(t, oldToken)
		var log bytes.Buffer
		failed := 0
		a := New(Options{Listener: "http", Secrets: secrets, Failed: func() { failed++ }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		try := func(token string, shown bool) bool {
			_, known := a.Authenticate(&Credentials{Token: token, Shown: shown, Remote: &remote{RemoteAddr: "192.0.2.1:1"}})
			return known
		}
		for i := range 1000 {
			if try(fmt.Sprintf("guess-%d-0123456789", i), true) {
				t.Fatal("a guess was right")
			}
		}
		if try("", false) || !try(oldToken, true) {
			t.Error("a caller without a token is known, or one with it is not")
		}
		if failed != 1000 || strings.Count(log.String(), "\n") != 1 || strings.Contains(log.String(), "guess") {
			t.Errorf("%d failures were counted, logged: %s", failed, log.String())
		}
		log.Reset()
		time.Sleep(time.Second)
		try("another-guess-0123456789", true)
		if want := `msg="callers show secrets that are wrong" listener=http failures=1000 last_remote=192.0.2.1:1`; !strings.Contains(log.String(), want) {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// TestConnectionsAreExhausted by failures in a row.
func TestConnectionsAreExhausted(t *testing.T) {
	t.Parallel()
	secrets, _ := secretsOf(t, oldToken)
	a := New(Options{Listener: "http", Secrets: secrets})
	var conn Connection
	try := func(token string) { a.Authenticate(&Credentials{Token: token, Shown: true, Connection: &conn}) }
	for range 3 {
		for range MaxFailures - 1 {
			try("wrong")
		}
		if conn.Exhausted() {
			t.Fatal("too early")
		}
		try(oldToken)
	}
	for range MaxFailures {
		try("wrong")
	}
	if !conn.Exhausted() {
		t.Error("a connection has guesses without end")
	}
	if (*Connection)(nil).Exhausted() {
		t.Error("nobody counts, and there were too many")
	}
}

// TestGuessesInParallel: calls in flight on one connection try no more secrets than calls
// in a row.
func TestGuessesInParallel(t *testing.T) {
	t.Parallel()
	secrets, _ := secretsOf(t, oldToken)
	a := New(Options{Listener: "http", Secrets: secrets})
	var conn Connection
	try := func(token string) bool {
		_, known := a.Authenticate(&Credentials{Token: token, Shown: true, Connection: &conn})
		return known
	}
	var guesses sync.WaitGroup
	for range 900 {
		guesses.Go(func() { try("wrong") })
	}
	guesses.Wait()
	if try(oldToken) {
		t.Error("guess 901 on a connection was tried, and right")
	}
	if _, known := a.Authenticate(&Credentials{Token: oldToken, Shown: true, Connection: new(Connection)}); !known {
		t.Error("another connection is refused")
	}
}
