package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir/internal/deadline"
)

const (
	// oldPrices is the age from which a price table is old, and agePause the time between two
	// warnings.
	oldPrices = 90 * 24 * time.Hour
	agePause  = 24 * time.Hour
)

// pricesAge knows how old the prices in force are.
type pricesAge struct {
	asOf   func() time.Time // zero: unknown
	logger *slog.Logger
}

// age returns how old the prices are; 0 if that is unknown.
func (p *pricesAge) age() time.Duration {
	asOf := p.asOf()
	if asOf.IsZero() {
		return 0
	}
	return max(0, time.Since(asOf))
}

// watch warns once a day while the prices are old, until ctx ends.
func (p *pricesAge) watch(ctx context.Context) {
	for {
		if age := p.age(); age > oldPrices {
			p.logger.Warn("the prices are old: budgets of dollars count what models cost then",
				"as_of", p.asOf().Format(time.DateOnly), "days", int(age/(24*time.Hour)), "want", "prices of the last 90 days, with a new as_of")
		}
		if deadline.Sleep(ctx, agePause) != nil {
			return
		}
	}
}
