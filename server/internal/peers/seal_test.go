package peers

import (
	"errors"
	"testing"
	"time"
)

const (
	channel = "weir:peers"
	secret  = "a secret of all instances"
)

// sealed is when messages of fuzz tests were sealed.
var sealed = time.Now()

// TestSeal: a message is believed once, lately, on its channel, and as it was sent.
func TestSeal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	from := newSeal(secret)
	for name, test := range map[string]struct {
		change func(message []byte) []byte
		open   func(s *seal, message []byte) ([]byte, error)
		want   error
	}{
		"as it was sent":  {},
		"no MAC":          {change: func([]byte) []byte { return []byte("an instance") }, want: errUnsealed},
		"empty":           {change: func([]byte) []byte { return nil }, want: errUnsealed},
		"cut short":       {change: func(m []byte) []byte { return m[:headBytes-1] }, want: errUnsealed},
		"version":         {change: func(m []byte) []byte { m[0]++; return m }, want: errUnsealed},
		"sender":          {change: func(m []byte) []byte { m[1]++; return m }, want: errUnsealed},
		"stamp":           {change: func(m []byte) []byte { m[24]++; return m }, want: errUnsealed},
		"MAC":             {change: func(m []byte) []byte { m[25]++; return m }, want: errUnsealed},
		"payload":         {change: func(m []byte) []byte { m[headBytes]++; return m }, want: errUnsealed},
		"longer":          {change: func(m []byte) []byte { return append(m, 'x') }, want: errUnsealed},
		"shorter":         {change: func(m []byte) []byte { return m[:len(m)-1] }, want: errUnsealed},
		"another channel": {open: func(s *seal, m []byte) ([]byte, error) { return s.open("other:peers", m, now) }, want: errUnsealed},
		"another secret":  {open: func(_ *seal, m []byte) ([]byte, error) { return newSeal("another").open(channel, m, now) }, want: errUnsealed},
		"nearly old":      {open: func(s *seal, m []byte) ([]byte, error) { return s.open(channel, m, now.Add(maxAge)) }},
		"old":             {open: func(s *seal, m []byte) ([]byte, error) { return s.open(channel, m, now.Add(maxAge+time.Millisecond)) }, want: errOld},
		"a clock ahead":   {open: func(s *seal, m []byte) ([]byte, error) { return s.open(channel, m, now.Add(-maxAge+time.Second)) }},
		"far ahead":       {open: func(s *seal, m []byte) ([]byte, error) { return s.open(channel, m, now.Add(-maxAge-time.Second)) }, want: errOld},
		"again": {open: func(s *seal, m []byte) ([]byte, error) {
			if _, err := s.open(channel, m, now); err != nil {
				t.Error(err)
			}
			return s.open(channel, m, now)
		}, want: errReplayed},
		"after a later one": {open: func(s *seal, m []byte) ([]byte, error) {
			if _, err := s.open(channel, from.seal(channel, nil, now), now); err != nil {
				t.Error(err)
			}
			return s.open(channel, m, now)
		}, want: errReplayed},
	} {
		to := newSeal(secret)
		message := from.seal(channel, []byte("payload"), now)
		if test.change != nil {
			message = test.change(message)
		}
		if test.open == nil {
			test.open = func(s *seal, m []byte) ([]byte, error) { return s.open(channel, m, now) }
		}
		got, err := test.open(to, message)
		if !errors.Is(err, test.want) || err == nil && string(got) != "payload" {
			t.Errorf("%s: %q, %v; want %v", name, got, err, test.want)
		}
	}
	if newSeal("") != nil {
		t.Error("an empty secret is one")
	}
}

// TestSealClock: a sender whose clock stands or steps back goes on being believed, and
// senders that have left are forgotten.
func TestSealClock(t *testing.T) {
	t.Parallel()
	from, to, now := newSeal(secret), newSeal(secret), time.Now()
	for i, at := range []time.Time{now, now, now.Add(-time.Minute), now.Add(time.Second)} {
		if _, err := to.open(channel, from.seal(channel, nil, at), now); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	later := now.Add(maxAge + time.Minute)
	if _, err := to.open(channel, newSeal(secret).seal(channel, nil, later), later); err != nil || len(to.seen) != 1 {
		t.Errorf("%d senders are known: %v", len(to.seen), err)
	}
}
