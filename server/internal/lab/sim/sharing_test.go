package sim

import "testing"

// TestShare: with guarantees no class is refused what is guaranteed to it, also after a
// pause, and what nobody uses is lent; without them the class that floods starves others.
func TestShare(t *testing.T) {
	t.Parallel()
	r, err := RunSharing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	without, with := r.runs[0], r.runs[1]
	for i, name := range []string{"web", "ads"} {
		if offered, granted := total(with.offered[i]), total(with.granted[i]); granted != offered || granted == 0 {
			t.Errorf("%s: %d of %d granted with a guarantee", name, granted, offered)
		}
		if offered, granted := total(without.offered[i]), total(without.granted[i]); granted > offered*3/4 {
			t.Errorf("%s: %d of %d granted without a guarantee: the flood does no harm", name, granted, offered)
		}
	}
	for _, c := range []struct{ second, want int64 }{{20, 35}, {35, 75}, {55, 35}} {
		if got := with.granted[2][c.second]; got < c.want-8 || got > c.want+8 {
			t.Errorf("second %d: the crawler is granted %d, want what the others leave, %d", c.second, got, c.want)
		}
	}
	for s := range int64(sharedSeconds) {
		if got := with.granted[0][s] + with.granted[1][s] + with.granted[2][s]; got > sharedLimit.Count+sharedLimit.Burst {
			t.Errorf("second %d: %d granted", s, got)
		}
	}
}
