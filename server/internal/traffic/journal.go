package traffic

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

const (
	// leastPause is the least time between two lines about a limit; its period if
	// that is longer.
	leastPause = 10 * time.Second
	mostPause  = time.Hour
	// maxLines bounds the lines of one second, of all limits together.
	maxLines = 20
)

// journal logs refusals, from one goroutine.
type journal struct {
	recorder *Recorder
	logged   map[subject]logged
}

// A subject has lines of its own: the refusals of a limit, or those that are not enforced.
type subject struct {
	*tally
	shadow bool
}

// logged is the state of a limit in the log.
type logged struct {
	refused uint64
	next    time.Time
}

func newJournal(r *Recorder) *journal { return &journal{r, map[subject]logged{}} }

// write logs the limits that have refused since they were logged last.
func (j *journal) write(now time.Time) {
	t := j.recorder.table.Load()
	pauses := t.pauses()
	for known := range j.logged {
		if _, still := pauses[known.tally]; !still {
			delete(j.logged, known)
		}
	}
	lines := 0
	for _, of := range t.tallies {
		for _, shadow := range []bool{false, true} {
			about := subject{of, shadow}
			sample := about.sampleOf(shadow).Load()
			if sample == nil || now.Before(j.logged[about].next) || lines == maxLines {
				continue
			}
			lines++
			refused := about.refusals()
			j.line(about, *sample, refused-j.logged[about].refused-1)
			j.logged[about] = logged{refused, now.Add(pauses[of])}
			about.sampleOf(shadow).Store(nil)
		}
	}
}

// line logs a subject.
func (j *journal) line(about subject, key string, suppressed uint64) {
	message := "refused"
	if about.shadow {
		message = "would be refused"
	}
	attributes := []any{"domain", about.domain, "rule", about.rule, "key_hash", hashed(key), "suppressed", suppressed}
	if about.budget != "" {
		attributes = append(attributes, "budget", about.budget)
	}
	if about.trial {
		attributes = append(attributes, "trial", true)
	}
	j.recorder.logger.Info(message, attributes...)
}

// pauses returns how long each tally is not logged again.
func (t *table) pauses() map[*tally]time.Duration {
	all := map[*tally]time.Duration{t.request: leastPause}
	for limit, p := range t.current {
		all[p.tally] = max(all[p.tally], min(max(limit.Period, leastPause), mostPause))
	}
	return all
}

// refusals returns how many charges the limit has refused, or would have.
func (s subject) refusals() uint64 {
	of := Refused
	if s.shadow && !s.trial {
		of = ShadowRefused
	}
	n := uint64(0)
	for source := range s.counts[of] {
		n += s.counts[of][source].Load()
	}
	return n
}

// hashed returns the first 16 digits of a key's SHA-256, which stand for it in the log.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
