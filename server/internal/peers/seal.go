package peers

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

const (
	// maxAge is how old a message may be, and how far the clocks of instances may differ.
	maxAge = 5 * time.Minute
	// maxMessage bounds a message, in bytes; instances send far less.
	maxMessage = 1 << 20

	sealVersion = 1
	senderBytes = 16
	stampBytes  = 8
	// headBytes is the length of the header before a payload: version, sender, stamp and
	// MAC.
	headBytes = 1 + senderBytes + stampBytes + sha256.Size
)

// The reasons to ignore a message.
var (
	errTooLong  = errors.New("it is too long")
	errSealed   = errors.New("it has a MAC, and this instance has no secret")
	errUnsealed = errors.New("it has no MAC of this secret")
	errOld      = errors.New("its time is more than 5m from this host's")
	errReplayed = errors.New("it or a later message came before")
)

// A sender is the random name of a process.
type sender [senderBytes]byte

// A seal proves with a MAC that a message comes from a process that knows the secret, was
// sent on this channel in the last minutes, and was not received before. A sealed message is
//
//	version (1) | sender (16) | stamp (8) | MAC (32) | payload
//
// with HMAC-SHA256 over the channel, a zero byte and all but the MAC. The stamp is the
// sender's time in microseconds, and rises with each message.
type seal struct {
	key    []byte
	sender sender

	mu   sync.Mutex // guards last
	last int64      // stamp

	// seen has the last stamp of each sender. It belongs to the goroutine that opens
	// messages.
	seen map[sender]int64
}

// newSeal returns a seal, or nil without a secret.
func newSeal(secret string) *seal {
	if secret == "" {
		return nil
	}
	// The secret has other uses, so the key is derived.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("weir peers"))
	s := &seal{key: mac.Sum(nil), seen: map[sender]int64{}}
	_, _ = rand.Read(s.sender[:]) // it never fails
	return s
}

// seal returns a message for a payload.
func (s *seal) seal(channel string, payload []byte, now time.Time) []byte {
	s.mu.Lock()
	s.last = max(now.UnixMicro(), s.last+1)
	stamp := s.last
	s.mu.Unlock()
	message := make([]byte, 0, headBytes+len(payload))
	message = append(message, sealVersion)
	message = append(message, s.sender[:]...)
	message = binary.BigEndian.AppendUint64(message, uint64(stamp))
	message = append(message, s.mac(channel, message, payload)...)
	return append(message, payload...)
}

func (s *seal) mac(channel string, head, payload []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(channel))
	mac.Write([]byte{0})
	mac.Write(head)
	mac.Write(payload)
	return mac.Sum(nil)
}

// open returns the payload of a message that was sealed with the same secret for the
// channel within maxAge, unless it or a later message of its sender was opened before.
func (s *seal) open(channel string, message []byte, now time.Time) ([]byte, error) {
	if len(message) < headBytes || message[0] != sealVersion {
		return nil, errUnsealed
	}
	head, rest := message[:headBytes-sha256.Size], message[headBytes-sha256.Size:]
	given, payload := rest[:sha256.Size], rest[sha256.Size:]
	if !hmac.Equal(given, s.mac(channel, head, payload)) {
		return nil, errUnsealed
	}
	from := sender(head[1:])
	stamp := int64(binary.BigEndian.Uint64(head[1+senderBytes:]))
	if age := now.UnixMicro() - stamp; age > maxAge.Microseconds() || age < -maxAge.Microseconds() {
		return nil, errOld
	}
	last, known := s.seen[from]
	if known && stamp <= last {
		return nil, errReplayed
	}
	if !known {
		// Senders whose messages are all too old need not be remembered.
		for other, stamp := range s.seen {
			if now.UnixMicro()-stamp > maxAge.Microseconds() {
				delete(s.seen, other)
			}
		}
	}
	s.seen[from] = stamp
	return payload, nil
}
