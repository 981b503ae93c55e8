package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	// mark begins the keys that are not what a key function returned.
	mark = "\x00"
	// maxLiteral is the length of the longest key that stands as it is.
	maxLiteral  = 200
	digestBytes = 16
)

// Unknown is the key that all share whose key cannot be found. No other key is
// equal to it.
const Unknown = mark + "unknown"

// Join makes one key of several parts; different parts make different keys.
func Join(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)) + ":" + part)
	}
	return b.String()
}

// Digest stands for a value that must not be stored, such as a token.
func Digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:digestBytes])
}

// Bounded returns the key, or a digest of one that is long. Different keys
// remain different.
func Bounded(key string) string {
	if key == Unknown || len(key) <= maxLiteral && !strings.HasPrefix(key, mark) {
		return key
	}
	return mark + Digest(key)
}
