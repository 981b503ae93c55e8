package overrides

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
)

// wire is an override as it is kept in Redis.
type wire struct {
	// Limit is the limit's text form. Empty: no limit.
	Limit   string `json:"limit"`
	UntilMS int64  `json:"until_ms"`
}

func encode(o override.Override) string {
	w := wire{UntilMS: o.Until.UnixMilli()}
	if o.Limit != nil {
		w.Limit = o.Limit.String()
	}
	// A text and a number always marshal.
	text, _ := json.Marshal(w)
	return string(text)
}

func decode(key, text string) (override.Override, error) {
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return override.Override{}, fmt.Errorf("override: %q: %w", text, err)
	}
	o := override.Override{Key: key, Until: time.UnixMilli(w.UntilMS)}
	if w.Limit == "" {
		return o, nil
	}
	limit, err := weir.ParseLimit(w.Limit)
	if err != nil {
		return o, err
	}
	o.Limit, err = limit.Compile()
	return o, err
}
