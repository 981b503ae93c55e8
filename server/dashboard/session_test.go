package dashboard

import (
	"testing"
	"time"
)

// TestSessionsEnd: by time, by logout, and by too many others.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	var s sessions
	now := time.Unix(1_700_000_000, 0)
	first := s.open(now)
	if !s.known(first, now.Add(sessionLife-1)) || s.known(first, now.Add(sessionLife)) || s.known(first, now) {
		t.Error("a session does not end when its time is over")
	}
	if s.known("", now) || s.known("nothing", now) {
		t.Error("unknown sessions are known")
	}
	second := s.open(now)
	s.close(second)
	if s.known(second, now) {
		t.Error("a session outlives its logout")
	}
	oldest := s.open(now)
	var last string
	for i := range maxSessions {
		last = s.open(now.Add(time.Duration(i+1) * time.Second))
	}
	if s.known(oldest, now) || !s.known(last, now) || len(s.end) != maxSessions {
		t.Errorf("%d sessions; the oldest is known: %v", len(s.end), s.known(oldest, now))
	}
}
