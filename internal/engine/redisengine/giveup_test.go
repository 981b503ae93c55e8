package redisengine

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateReplyIsGivenUp: a reply that does not come within ten seconds is lost, and the
// connection is closed.
func TestLateReplyIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		var late lateReply
		begin, lost := time.Now(), error(nil)
		late.then(func(_ string, err error) { lost = err })
		late.read(client)
		if waited := time.Since(begin); !errors.Is(lost, os.ErrDeadlineExceeded) || waited != 10*time.Second {
			t.Errorf("%v after %v", lost, waited)
		}
		if _, err := server.Write([]byte("+OK\r\n")); err == nil {
			t.Error("the connection is open")
		}
	})
}
