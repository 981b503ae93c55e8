package app

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestStopLosesNoCall has clients that never look at /readyz call without a pause
// while the server stops. They may be unable to connect at last, but no call that
// was sent goes without an answer.
func TestStopLosesNoCall(t *testing.T) {
	t.Parallel()
	app := start(t, Options{DrainDelay: time.Second})
	url := "http://" + app.Addrs()[0].Address + "/v1/take"
	const body = `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"1"}]}]}`
	var answered atomic.Int64
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for {
				// What is no GET is not sent twice by the client itself.
				answer, err := (&http.Client{Transport: transport}).Post(url, "application/json", strings.NewReader(body))
				if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
					return
				}
				if err != nil {
					t.Errorf("a call was lost: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				answered.Add(1)
			}
		})
	}
	for answered.Load() < 1000 {
		time.Sleep(time.Millisecond)
	}
	stop(t, app)
	clients.Wait()
}

// TestStopDismissesIdleClients uses a connection that was idle when the server
// ceased to listen.
func TestStopDismissesIdleClients(t *testing.T) {
	t.Parallel()
	app := start(t, Options{DrainDelay: time.Second})
	address := app.Addrs()[0].Address
	conn := connect(t, address)
	answers := bufio.NewReader(conn)
	call := func() *http.Response {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer
	}
	if call().Close {
		t.Error("the connection is closed before the server stops")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- app.Stop(context.Background()) }()
	for {
		other, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		_ = other.Close()
		time.Sleep(time.Millisecond)
	}
	// The server may answer once more before it asks its clients to leave.
	for !call().Close {
		time.Sleep(time.Millisecond)
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the connection to be closed in order", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
