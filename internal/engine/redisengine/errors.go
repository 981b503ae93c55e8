package redisengine

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusals are the prefixes of replies with which Redis says that it ran nothing.
var refusals = []string{
	"NOSCRIPT ", "READONLY ", "LOADING ", "MASTERDOWN ", "NOREPLICAS ", "OOM ", "BUSY ",
	"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "CROSSSLOT ", "MISCONF ",
	"ERR max number of clients reached",
}

// slotWithoutMaster is the reply of a node of a cluster to a key whose slot has no master: the
// node itself is well.
const slotWithoutMaster = "CLUSTERDOWN Hash slot not served"

// denials are the prefixes of replies with which Redis rejects our credentials, our
// permissions or our commands, until an operator changes its settings or ours;
// denialsWithin appear anywhere in errors of commands that a script calls.
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

// barred reports whether Redis denies us access until settings change. A script finds out
// before it writes.
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

// distrusted reports whether one side rejects the other's certificate.
func distrusted(err error) bool {
	var unverified *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &unverified) || errors.As(err, &alert)
}

// undialled reports whether the request cannot have been sent, because there was no
// connection.
func undialled(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// cutShort reports whether the end of a command was not written to its connection, so that
// Redis does not run it. A write fails also if its deadline was over before it began, as on a
// busy machine.
func cutShort(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write"
}
