package redisstore

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusals begin the replies with which Redis says that it ran nothing.
var refusals = []string{
	"NOSCRIPT ", "READONLY ", "LOADING ", "MASTERDOWN ", "NOREPLICAS ", "OOM ", "BUSY ",
	"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "CROSSSLOT ", "MISCONF ",
	"ERR max number of clients reached",
}

func refused(reply string) bool {
	for _, prefix := range refusals {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}

// forbidden reports whether a script ran into what its user may not do: a command,
// or a key. Redis 7 says so in the script's error, older ones in words of their own.
func forbidden(reply string) bool {
	return strings.Contains(reply, "NOPERM") || strings.Contains(reply, "ACL failure in script") ||
		strings.Contains(reply, "The user executing the script can't")
}

// undialled reports whether the request cannot have left: no connection was
// there to carry it.
func undialled(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}
