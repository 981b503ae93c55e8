package httpapi

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// setTerms reads what the body says beside whom it is about: how much, how, and
// for how long.
func (b *actBody) setTerms(req *rules.Request) error {
	if err := b.checkGiven(req.Kind); err != nil {
		return err
	}
	if err := b.setCost(req); err != nil {
		return err
	}
	if err := b.setMode(req); err != nil {
		return err
	}
	var err error
	req.Hold, err = millisOf("hold_ms", b.HoldMS, 0)
	return err
}

// checkGiven refuses what would be ignored otherwise.
func (b *actBody) checkGiven(kind weir.Kind) error {
	for _, f := range []struct {
		name  string
		given bool
		kinds []weir.Kind
	}{
		{"cost", b.Cost != nil, []weir.Kind{weir.KindTake, weir.KindRefund, weir.KindSettle}},
		{"mode", b.Mode != nil, []weir.Kind{weir.KindTake}},
		{"max_wait_ms", b.MaxWaitMS != nil, []weir.Kind{weir.KindTake}},
		{"hold_ms", b.HoldMS != nil, []weir.Kind{weir.KindTake, weir.KindRenew}},
	} {
		if f.given && !slices.Contains(f.kinds, kind) {
			return invalid(f.name, "given", "none: "+kind.String()+" has none")
		}
	}
	if kind != weir.KindTake && b.ID == "" {
		return invalid("id", "missing", "the id of the take to "+kind.String())
	}
	return nil
}

// setCost reads the cost, which a take need not say and what corrects one must.
func (b *actBody) setCost(req *rules.Request) error {
	least := int64(0)
	switch req.Kind {
	case weir.KindTake:
		req.Cost = 1
	case weir.KindRefund:
		least = 1
	case weir.KindRelease, weir.KindRenew:
		return nil
	}
	if b.Cost == nil && req.Kind != weir.KindTake {
		return invalid("cost", "missing", fmt.Sprintf("%d … %d", least, weir.MaxCost))
	}
	if b.Cost != nil {
		req.Cost = *b.Cost
	}
	if req.Cost < least || req.Cost > weir.MaxCost {
		return invalid("cost", strconv.FormatInt(req.Cost, 10), fmt.Sprintf("%d … %d", least, weir.MaxCost))
	}
	return nil
}

// setMode reads in which way a take is made.
func (b *actBody) setMode(req *rules.Request) error {
	if req.Kind != weir.KindTake {
		return nil
	}
	mode := "all"
	if b.Mode != nil && *b.Mode != "" {
		mode = *b.Mode
	}
	switch mode {
	case "reserve":
		if b.MaxWaitMS == nil {
			return invalid("max_wait_ms", "missing", "how long a reserved charge may wait")
		}
		var err error
		req.MaxWait, err = millisOf("max_wait_ms", b.MaxWaitMS, 1)
		return err
	case "up_to":
		if req.Cost > 0 {
			req.Cost, req.UpTo = 1, req.Cost
		}
	case "all":
	default:
		return invalid("mode", strconv.Quote(mode), "all, up_to or reserve")
	}
	if b.MaxWaitMS != nil && *b.MaxWaitMS != 0 {
		return invalid("max_wait_ms", strconv.FormatInt(*b.MaxWaitMS, 10), `0, or "mode":"reserve" beside it`)
	}
	req.Immediate = true
	return nil
}

// millisOf reads a number of milliseconds; absent is 0.
func millisOf(field string, ms *int64, least int64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < least || *ms > weir.MaxWait.Milliseconds() {
		return 0, invalid(field, strconv.FormatInt(*ms, 10), fmt.Sprintf("%d … %d", least, weir.MaxWait.Milliseconds()))
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// spelled says what is wrong with a request in the words of whoever sent it.
func spelled(e *weir.InvalidError, req *rules.Request) *weir.InvalidError {
	switch e.Field {
	case "up_to":
		return invalid("mode", `"up_to"`, e.Want)
	case "max_wait":
		return invalid("max_wait_ms", strconv.FormatInt(req.MaxWait.Milliseconds(), 10), e.Want)
	}
	return e
}
