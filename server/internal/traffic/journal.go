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
	logged   map[*tally]logged
}

// logged is the state of a limit in the log.
type logged struct {
	refused uint64
	next    time.Time
}

func newJournal(r *Recorder) *journal { return &journal{r, map[*tally]logged{}} }

// write logs the limits that have refused since they were logged last.
func (j *journal) write(now time.Time) {
	t := j.recorder.table.Load()
	pauses := t.pauses()
	for known := range j.logged {
		if _, still := pauses[known]; !still {
			delete(j.logged, known)
		}
	}
	lines := 0
	for _, of := range t.tallies {
		sample := of.sample.Load()
		if sample == nil || now.Before(j.logged[of].next) || lines == maxLines {
			continue
		}
		lines++
		refused := of.refusals()
		attributes := []any{
			"domain", of.domain, "rule", of.rule, "key_hash", hashed(*sample),
			"suppressed", refused - j.logged[of].refused - 1,
		}
		if of.budget != "" {
			attributes = append(attributes, "budget", of.budget)
		}
		if of.trial {
			attributes = append(attributes, "trial", true)
		}
		j.recorder.logger.Info("refused", attributes...)
		j.logged[of] = logged{refused, now.Add(pauses[of])}
		of.sample.Store(nil)
	}
}

// pauses returns how long each tally is not logged again.
func (t *table) pauses() map[*tally]time.Duration {
	all := map[*tally]time.Duration{t.request: leastPause}
	for limit, p := range t.current {
		all[p.tally] = max(all[p.tally], min(max(limit.Period, leastPause), mostPause))
	}
	return all
}

// refusals returns how many charges a tally has refused, or would have.
func (t *tally) refusals() uint64 {
	n := uint64(0)
	for _, d := range []Decision{Refused, ShadowRefused} {
		for s := range t.counts[d] {
			n += t.counts[d][s].Load()
		}
	}
	return n
}

// hashed returns the first 16 digits of a key's SHA-256, which stand for it in the log.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
