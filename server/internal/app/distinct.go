package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
)

// validateKeys checks how many keys limits may have.
func (o *Options) validateKeys() error {
	if o.MaxKeys < 0 || o.MaxKeys > keylimit.MaxKeys {
		return &weir.InvalidError{Field: "max keys", Value: strconv.Itoa(o.MaxKeys), Want: fmt.Sprintf("1 … %d; 0 for any number", keylimit.MaxKeys)}
	}
	return nil
}

// distinct is about the limits of the rules in force. Limits that come with requests
// have as many keys as they like.
func (a *App) distinct() keylimit.Options {
	return keylimit.Options{
		Logger: a.logger,
		Budget: func(l *weir.Limit) keylimit.Budget {
			maxKeys, overflow := a.rules.Load().MaxKeys(l, a.options.MaxKeys)
			return keylimit.Budget{MaxKeys: maxKeys, Overflow: overflow}
		},
	}
}

// mostShownKeys is how many limits are named that have too many keys.
const mostShownKeys = 10

// keysError says which limits have as many keys as they may.
func (a *App) keysError() error {
	var full []string
	more := 0
	for _, s := range a.stack.Distinct().Stats() {
		switch {
		case !s.Full():
		case len(full) == mostShownKeys:
			more++
		default:
			full = append(full, fmt.Sprintf("%s has %d keys of %d", s.Overflow, s.Keys, s.MaxKeys))
		}
	}
	if len(full) == 0 {
		return nil
	}
	if more > 0 {
		full = append(full, fmt.Sprintf("so have %d more limits", more))
	}
	return errors.New("new keys share one budget: " + strings.Join(full, "; "))
}
