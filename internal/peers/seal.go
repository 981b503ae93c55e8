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
	// maxAge is how old a message may be, and how far clocks of instances may be apart.
	maxAge = 5 * time.Minute
	// maxMessage bounds a message, in bytes; what instances send has far less.
	maxMessage = 1 << 20

	sealVersion = 1
	senderBytes = 16
	stampBytes  = 8
	// headBytes is what comes before a payload: version, sender, stamp and MAC. No
	// message without a MAC on the topic of instances is as long, so that instances of
	// versions that know no MAC ignore these.
	headBytes = 1 + senderBytes + stampBytes + sha256.Size
)

// What is wrong with a message of others.
var (
	errUnsealed = errors.New("no MAC of this secret")
	errOld      = errors.New("its time is more than 5m from this host's")
	errReplayed = errors.New("it came before")
)

// A sender is one process, by a random name.
type sender [senderBytes]byte

// A seal proves with a MAC that messages come from who knows a secret, for one channel,
// once, and lately. What it seals is
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

	// heard has the last stamp of each sender, by channel. It belongs to the goroutine
	// that opens messages.
	heard map[string]map[sender]int64
}

// newSeal returns a seal, or nil without a secret.
func newSeal(secret string) *seal {
	if secret == "" {
		return nil
	}
	// A key of its own: the secret has other uses.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("weir notice"))
	s := &seal{key: mac.Sum(nil), heard: map[string]map[sender]int64{}}
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
// channel, lately, and did not come before.
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
	if s.heard[channel] == nil {
		s.heard[channel] = map[sender]int64{}
	}
	senders := s.heard[channel]
	last, known := senders[from]
	if known && stamp <= last {
		return nil, errReplayed
	}
	if !known {
		forgetOld(senders, now)
	}
	senders[from] = stamp
	return payload, nil
}

// forgetOld forgets senders whose last message would be too old anyway.
func forgetOld(senders map[sender]int64, now time.Time) {
	for who, stamp := range senders {
		if now.UnixMicro()-stamp > maxAge.Microseconds() {
			delete(senders, who)
		}
	}
}
