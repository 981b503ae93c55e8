package redisstore_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestAttemptsApart is for one ID over two hash slots.
func TestAttemptsApart(t *testing.T) {
	t.Parallel()
	storetest.Attempts(t, open(t, dialCluster(t, testserver.StartCluster(t, 3)), redisstore.Options{Timeout: time.Minute}), 300)
}
