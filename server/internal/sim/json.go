package sim

// JSON is the result as programs read it; names and units are part of it.
func (r *Result) JSON() any {
	s := &r.Scenario
	faults := make([]string, 0, len(s.Faults))
	for _, f := range s.Faults {
		faults = append(faults, f.String())
	}
	runs := make([]map[string]any, 0, len(r.Runs))
	for i := range r.Runs {
		run := &r.Runs[i]
		runs = append(runs, map[string]any{
			"algorithm": run.Algorithm.String(), "limit": run.Limit.String(), "requests": run.Requests,
			"offered": run.Offered, "granted": run.Granted, "refused": run.Refused(), "worst": run.Worst, "promised": run.Bound,
			"fairness": run.Fairness, "key_bytes": run.KeyBytes, "longest_delay_ms": run.LongestDelay.Milliseconds(),
			"course": map[string]any{"offered": run.Offers, "granted": run.Grants, "held": run.Held},
		})
	}
	return map[string]any{
		"scenario": s.Name, "limit": s.Limit.String(), "pattern": s.Pattern.String(), "retry": s.Retry.String(),
		"rate": s.Rate, "keys": s.Keys, "clients": s.clients(), "duration_ms": s.Duration.Milliseconds(), "seed": s.Seed,
		"instances": s.instances(), "local_shares": s.LocalShares, "faults": faults,
		"point_us": r.Width.Microseconds(), "runs": runs,
	}
}
