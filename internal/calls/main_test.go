package calls

import (
	"testing"

	"go.uber.org/goleak"
)

// A pool of go-redis whose server is unreachable checks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
