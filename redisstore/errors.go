package redisstore

import (
	"crypto/tls"
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

// denials begin the replies with which Redis says that it runs nothing of ours
// until somebody changes who we are, what we may do, or what it is; denialsWithin
// stand in what a script is told.
var (
	denials = []string{
		"NOAUTH ", "WRONGPASS ", "NOPERM ", "ERR AUTH ", "ERR Client sent AUTH", "ERR invalid password",
		"ERR DB index", "ERR invalid DB index", "ERR unknown command", "NOPROTO ",
	}
	denialsWithin = []string{
		"NOPERM", "ACL failure in script", "The user executing the script can't", "This Redis command is not allowed from script",
	}
)

func refused(reply string) bool { return begins(reply, refusals) }

// barred reports whether Redis has denied us for good. What a script may not do it
// finds out before it writes.
func barred(reply string) bool {
	for _, part := range denialsWithin {
		if strings.Contains(reply, part) {
			return true
		}
	}
	return begins(reply, denials)
}

func begins(reply string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}

// distrusted reports whether one side does not accept the other's certificate.
func distrusted(err error) bool {
	var unverified *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &unverified) || errors.As(err, &alert)
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
