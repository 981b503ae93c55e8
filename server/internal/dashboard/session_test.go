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
	known := func(secret string, now time.Time) bool {
		said, found := s.known(secret, now)
		return found && said == "said"
	}
	first := s.begin("said", now)
	if !known(first, now.Add(sessionLife-1)) || known(first, now.Add(sessionLife)) || known(first, now) {
		t.Error("a session does not end when its time is over")
	}
	if known("", now) || known("nothing", now) {
		t.Error("unknown sessions are known")
	}
	second := s.begin("said", now)
	s.close(second)
	if known(second, now) {
		t.Error("a session outlives its logout")
	}
	oldest := s.begin("said", now)
	var last string
	for i := range maxSessions {
		last = s.begin("said", now.Add(time.Duration(i+1)*time.Second))
	}
	if known(oldest, now) || !known(last, now) || len(s.open) != maxSessions {
		t.Errorf("%d sessions; the oldest is known: %v", len(s.open), known(oldest, now))
	}
}
