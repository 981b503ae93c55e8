package compare

import (
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/server/internal/config"
)

// The reasons of differences.
const (
	modesDiffer  = "the descriptors are judged alike: shadow mode or quota mode differs"
	onlyOther    = "no rule of Weir has a limit for the descriptor"
	onlyWeir     = "only Weir has a limit for the descriptor"
	limitsDiffer = "the limits differ"
	countsYoung  = "Weir has not yet counted for a whole window of the limit"
	countsDiffer = "the counts differ"
	decidedLate  = "Weir decided more than 20 ms after the other service"
)

// A difference is the first one between two answers.
type difference struct {
	result      Result
	descriptor  int // -1: of no single one
	other, weir *rlsv3.RateLimitResponse_DescriptorStatus
	reason      string
}

// differ returns how Weir's answer, ours, differs from theirs; nil if Envoy would do the same
// for the same limits.
func differ(theirs, ours *rlsv3.RateLimitResponse) *difference {
	d := &difference{result: Limits, descriptor: -1, reason: modesDiffer}
	switch other, own := refused(theirs.GetOverallCode()), refused(ours.GetOverallCode()); {
	case own && !other:
		d.result = Stricter
	case other && !own:
		d.result = Looser
	}
	for i, other := range theirs.GetStatuses() {
		if i >= len(ours.GetStatuses()) {
			break
		}
		own := ours.GetStatuses()[i]
		reason := reasonOf(other, own)
		codes := refused(other.GetCode()) != refused(own.GetCode())
		if d.result == Limits && reason == countsDiffer || d.result != Limits && !codes {
			continue // not the cause
		}
		d.descriptor, d.other, d.weir, d.reason = i, other, own, reason
		return d
	}
	if d.result == Limits {
		return nil
	}
	return d
}

// reasonOf returns why two results of a descriptor may differ; the last reason is the counts.
func reasonOf(other, own *rlsv3.RateLimitResponse_DescriptorStatus) string {
	a, b := other.GetCurrentLimit(), own.GetCurrentLimit()
	switch {
	case a == nil && b != nil:
		return onlyWeir
	case a != nil && b == nil:
		return onlyOther
	case a.GetRequestsPerUnit() != b.GetRequestsPerUnit() || windowOf(a) != windowOf(b):
		return limitsDiffer
	}
	return countsDiffer
}

func refused(code rlsv3.RateLimitResponse_Code) bool {
	return code == rlsv3.RateLimitResponse_OVER_LIMIT
}

// windowOf returns the length of a limit's window, 0 without one.
func windowOf(l *rlsv3.RateLimitResponse_RateLimit) time.Duration {
	return config.UnitLength(strings.ToLower(l.GetUnit().String())) * time.Duration(multiplierOf(l))
}

// multiplierOf returns the number of units in a window.
func multiplierOf(l *rlsv3.RateLimitResponse_RateLimit) int64 {
	return int64(max(1, l.GetUnitMultiplier().GetValue()))
}
