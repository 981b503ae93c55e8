package redisengine_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestAttemptsApart is for one ID over two hash slots.
func TestAttemptsApart(t *testing.T) {
	t.Parallel()
	storetest.Attempts(t, open(t, dialCluster(t, testserver.StartCluster(t, 3)), redisengine.Options{Timeout: time.Minute}), 300)
}
