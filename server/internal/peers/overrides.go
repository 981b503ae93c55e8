package peers

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/override"
)

// keep is how much longer the keys in Redis live than the overrides in them.
const keep = 24 * time.Hour

//go:embed override.lua
var overrideText string

var overrideScript = redis.NewScript(overrideText)

// A change waits to be written to Redis.
type change struct {
	override.Change
	done chan error // the first result; it has room for one
}

// answer gives the caller of Announce a result, if it has none yet.
func (c *change) answer(err error) {
	select {
	case c.done <- err:
	default:
	}
}

// Announce shares a change of this instance's overrides with the others, which adopt it
// within a second. On an error it is tried again until it succeeds or the override expires.
// On [override.ErrFull] it is not: the override lasts until the next change by another
// instance. Where two instances change the same key, the last one to reach Redis wins.
func (g *Group) Announce(ctx context.Context, c override.Change) error {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	waiting := g.enqueue(c)
	select {
	case err := <-waiting.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("announce override: %w", ctx.Err())
	}
}

// enqueue makes a change wait, in the place of an earlier one of its key.
func (g *Group) enqueue(c override.Change) *change {
	g.mu.Lock()
	defer g.mu.Unlock()
	if earlier := g.pending[c.Name()]; earlier != nil {
		earlier.answer(nil)
	}
	// The caller has made the change already, but it may have been undone since.
	if c.Ended {
		g.Overrides.End(c.Override)
	} else {
		_ = g.Overrides.Set(c.Override) // the caller knows its error
	}
	return g.wait(c)
}

// wait makes a change wait and wakes the goroutine that runs. The caller holds g.mu.
func (g *Group) wait(c override.Change) *change {
	waiting := &change{c, make(chan error, 1)}
	g.pending[c.Name()] = waiting
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return waiting
}

// push writes the changes that wait.
func (g *Group) push(ctx context.Context) error {
	waiting := g.waiting()
	for i, c := range waiting {
		err := g.write(ctx, c)
		if err != nil && !errors.Is(err, override.ErrFull) {
			for _, c := range waiting[i:] {
				c.answer(err)
			}
			return err
		}
		g.mu.Lock()
		if g.pending[c.Name()] == c {
			delete(g.pending, c.Name())
		}
		g.mu.Unlock()
		c.answer(err)
	}
	return nil
}

// waiting returns the changes that wait, and drops the overrides that have expired.
func (g *Group) waiting() []*change {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := make([]*change, 0, len(g.pending))
	for name, c := range g.pending {
		if !c.Ended && !time.Now().Before(c.Until) {
			delete(g.pending, name)
			c.answer(nil)
			continue
		}
		waiting = append(waiting, c)
	}
	return waiting
}

// write writes one change to Redis.
func (g *Group) write(ctx context.Context, c *change) error {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	keys, text := []string{g.key("limits"), g.key("ends")}, ""
	if !c.Ended {
		text = encodeOverride(c.Override)
	}
	version, err := overrideScript.Run(ctx, g.Client, keys, c.Name(), text, c.Until.UnixMilli(), g.maxOverrides, rand.Text(), keep.Milliseconds()).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return override.ErrFull
	case err != nil:
		return fmt.Errorf("announce override: %w", err)
	case g.known == "":
		// Nothing is adopted yet, but this change is there: if it is lost, that is noticed.
		g.known = generationOf(version) + ":0:"
	}
	return nil
}

// adopt puts the overrides in Redis in force if their version is another one.
func (g *Group) adopt(ctx context.Context, version string) error {
	if version == g.known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	fields, err := g.Client.HGetAll(ctx, g.key("limits")).Result()
	switch {
	case err != nil:
		return fmt.Errorf("read overrides: %w", err)
	case g.lost(version) || g.lost(fields["version"]):
		g.restore(fields)
	default:
		g.replace(fields)
	}
	return nil
}

// replace puts the overrides in fields in force, but where a change waits.
func (g *Group) replace(fields map[string]string) {
	g.known = fields["version"]
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]override.Override, 0, len(fields))
	for field, text := range fields {
		name, found := strings.CutPrefix(field, "=")
		if !found || g.pending[name] != nil {
			continue
		}
		o, err := decodeOverride(name, text)
		if err != nil {
			// A newer version may have written it.
			g.Logger.Warn("skipped an override of another instance", "error", err)
			continue
		}
		list = append(list, o)
	}
	for _, c := range g.pending {
		if !c.Ended {
			list = append(list, c.Override)
		}
	}
	g.Overrides.Replace(list)
}

// lost reports whether Redis has forgotten changes that this instance adopted: all of
// them, or the last ones, as a replica that takes over before it received them.
func (g *Group) lost(version string) bool {
	return g.known != "" && generationOf(g.known) != generationOf(version) || changesOf(version) < changesOf(g.known)
}

// restore makes this instance's overrides that Redis has forgotten wait to be written
// there. Those that are in fields come from an instance that was faster, and stay.
func (g *Group) restore(fields map[string]string) {
	g.known = ""
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range append(g.Overrides.List(), g.Overrides.Raises()...) {
		if _, held := fields["="+o.Name()]; !held && g.pending[o.Name()] == nil {
			g.wait(override.Change{Override: o})
		}
	}
}

// generationOf returns the part of a version that stays the same until Redis loses all
// overrides.
func generationOf(version string) string {
	generation, _, _ := strings.Cut(version, ":")
	return generation
}

// changesOf returns how many changes led to a version, 0 if it cannot be read.
func changesOf(version string) int64 {
	_, rest, _ := strings.Cut(version, ":")
	count, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.ParseInt(count, 10, 64)
	return max(0, n)
}

// wire is an override as Redis holds it.
type wire struct {
	// Limit is the limit's text form. Empty: no limit.
	Limit string `json:"limit"`
	// Count is what the limit or the raise counts. Empty: requests.
	Count   string `json:"count,omitempty"`
	UntilMS int64  `json:"until_ms"`
	// Raise is the number of units that are added to the limit. Zero: the limit is replaced.
	Raise int64  `json:"raise,omitempty"`
	ID    string `json:"id,omitempty"`
	Note  string `json:"note,omitempty"`
}

func encodeOverride(o override.Override) string {
	w := wire{UntilMS: o.Until.UnixMilli()}
	if o.Limit != nil {
		w.Limit, w.Count = o.Limit.String(), o.Limit.Meter
	}
	if r := o.Raise; r != nil {
		w.Raise, w.Count, w.ID, w.Note = r.Units, r.Meter, r.ID, r.Note
	}
	text, _ := json.Marshal(w) // strings and numbers always marshal
	return string(text)
}

// decodeOverride reads the override of a name, as [override.Override.Name] returns it.
func decodeOverride(name, text string) (override.Override, error) {
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return override.Override{}, fmt.Errorf("override of %q: %w", name, err)
	}
	o := override.Override{Key: name, Until: time.UnixMilli(w.UntilMS)}
	if w.Raise != 0 {
		o.Raise = &override.Raise{ID: w.ID, Units: w.Raise, Meter: w.Count, Note: w.Note}
		if o.Key = strings.TrimSuffix(name, "\x00"+w.ID); o.Name() != name || w.ID == "" || w.Raise < 0 || w.Raise > algo.MaxWindow {
			return o, fmt.Errorf("raise of %q: %d units, ID %q", name, w.Raise, w.ID)
		}
		return o, nil
	}
	if w.Limit == "" {
		return o, nil
	}
	limit, err := weir.ParseLimit(w.Limit)
	if err != nil {
		return o, err
	}
	limit.Meter = w.Count
	o.Limit, err = limit.Compile()
	return o, err
}
