package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

// findingsPause is how old findings may be.
const findingsPause = 10 * time.Second

// findings are what is not as it should be about the store's servers. They are
// looked for when somebody asks whether the server is ready.
type findings struct {
	ask    func(context.Context) ([]redisstore.Finding, error)
	logger *slog.Logger

	mu      sync.Mutex // guards what follows; never held while waiting
	asked   time.Time
	known   []redisstore.Finding
	worked  bool // decisions were possible once
	looking bool
}

// check returns the findings as a part of readiness. What makes decisions impossible
// keeps the server from being ready as long as none has been possible; later it is
// for calls to say what to do, as with a store that is unreachable. The error is what
// keeps the store from deciding; without a finding it is all that is known.
func (f *findings) check(ctx context.Context, trouble error) (c httpapi.Check, known bool) {
	if !silent(trouble) {
		f.look(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if trouble != nil && len(f.known) == 0 {
		return c, false
	}
	c = httpapi.Check{Name: "store settings", Bearable: true}
	var all []string
	for _, found := range f.known {
		all = append(all, found.String())
		c.Bearable = c.Bearable && (f.worked || !found.Fatal)
	}
	if len(all) > 0 {
		c.Err = errors.New(strings.Join(all, "; "))
	}
	return c, true
}

// silent reports whether the store is known to send no replies.
func silent(err error) bool {
	var out *outage.Error
	return errors.As(err, &out) && out.Silent()
}

// look asks the store, unless that was done a moment ago, and logs what is new.
func (f *findings) look(ctx context.Context) {
	f.mu.Lock()
	wait := f.looking || time.Since(f.asked) < findingsPause
	f.looking = f.looking || !wait
	before := f.known
	f.mu.Unlock()
	if wait {
		return
	}
	found, err := f.ask(ctx)
	f.mu.Lock()
	f.looking = false
	if err == nil {
		// A store that is away has been said to be.
		f.known, f.asked = found, time.Now()
		f.worked = f.worked || !slices.ContainsFunc(found, func(one redisstore.Finding) bool { return one.Fatal })
	}
	f.mu.Unlock()
	for _, one := range found {
		if !slices.Contains(before, one) {
			level := slog.LevelWarn
			if one.Fatal {
				level = slog.LevelError
			}
			f.logger.Log(ctx, level, "the store is not as it should be", "node", one.Node, "setting", one.Setting, "found", one.Detail, "fatal", one.Fatal)
		}
	}
}
