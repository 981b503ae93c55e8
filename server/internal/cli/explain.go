package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// shownRejected is how many descriptors that were passed over are listed.
const shownRejected = 5

// explain prints which rules a request matches and why, and how they decide for a key
// that was never used.
func explain(ctx context.Context, w io.Writer, set *rules.Set, req *rules.Request) error {
	found, err := set.Explain(req)
	if err != nil {
		return err
	}
	// Nothing moves but the keys, so that the output is the same at any time.
	store := memengine.New(memengine.Options{Now: func() time.Time { return time.Unix(0, 0) }})
	store.Take(ctx, found.Plan.Acts)
	if err := found.Plan.Err(); err != nil {
		return err
	}
	p := &explainer{req: req, found: found}
	p.printf("domain %s\n", plainly(req.Domain))
	if !found.Known {
		p.printf("  unknown domain; known domains: %s\n", listed(set.Domains()))
	}
	for i := range req.Descriptors {
		p.descriptor(i)
	}
	p.answer()
	_, err = io.WriteString(w, p.text.String())
	return err
}

// explainBucket prints which rule Envoys lease units of for a bucket id. Its entries have no order.
func explainBucket(ctx context.Context, w io.Writer, set *rules.Set, req *rules.Request) error {
	id := slices.Clone(req.Descriptors[0])
	slices.SortFunc(id, func(a, b rules.Entry) int { return cmp.Compare(a.Key, b.Key) })
	texts := make([]string, len(id))
	for i, e := range id {
		texts[i] = entryText(e)
	}
	entries, rule := set.Quota(req.Domain, id)
	fmt.Fprintf(w, "bucket id %s\n", strings.Join(texts, ","))
	switch {
	case rule == nil:
		fmt.Fprint(w, "  no rule with quota: true has exactly these keys, or is chosen for these values\n"+
			"answer: ALLOW_ALL, or DENY_ALL with --unmatched refuse\n")
		return nil
	case rule.Unlimited:
		fmt.Fprintf(w, "  %s is unlimited\nanswer: ALLOW_ALL\n", rule.Path)
		return nil
	}
	asked := rules.Request{Domain: req.Domain, Descriptors: [][]rules.Entry{entries}, Cost: 1}
	return explain(ctx, w, set, &asked)
}

// An explainer prints an explanation.
type explainer struct {
	text  strings.Builder
	req   *rules.Request
	found *rules.Explanation
}

func (p *explainer) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

func (p *explainer) descriptor(i int) {
	entries, search := p.req.Descriptors[i], &p.found.Descriptors[i]
	texts := make([]string, len(entries))
	for j, e := range entries {
		texts[j] = entryText(e)
	}
	p.printf("descriptor %s\n", strings.Join(texts, ","))
	for _, level := range search.Levels {
		p.level(level)
	}
	if p.found.Known {
		p.end(search, entries)
	}
	for _, name := range search.Replaced {
		p.printf("  limit %s is replaced by another descriptor's limit, and not evaluated\n", plainly(name))
	}
	for j := range p.found.Plan.Applied {
		if a := &p.found.Plan.Applied[j]; a.Descriptor == i {
			p.limit(a)
		}
	}
}

// level prints the result for one entry.
func (p *explainer) level(c rules.Choice) {
	if c.Chosen == nil {
		p.printf("  %s  no rule matches; keys at this level: %s\n", entryText(c.Entry), listed(c.Keys))
	} else {
		p.printf("  %s  %s %s: %s\n", entryText(c.Entry), c.Chosen.At, entryText(c.Chosen.Entry), reasons[c.Chosen.Match])
	}
	for i, other := range c.Rejected {
		if i == shownRejected {
			p.printf("    and %d more\n", len(c.Rejected)-i)
			break
		}
		p.printf("    not %s %s: %s\n", other.At, entryText(other.Entry), whyNot(c, other))
	}
}

var reasons = map[rules.Match]string{
	rules.MatchExact:    "the exact value",
	rules.MatchWildcard: "a wildcard that matches",
	rules.MatchKey:      "the key, with any value",
}

func whyNot(c rules.Choice, other rules.Candidate) string {
	switch {
	case other.Match == rules.MatchNone && strings.Contains(other.Entry.Value, "*"):
		return "its pattern does not match"
	case other.Match == rules.MatchNone:
		return "another value"
	case other.Match == c.Chosen.Match:
		return "matches, too, but comes later"
	case c.Chosen.Match == rules.MatchExact:
		return "matches, too, but the exact value has priority"
	default:
		return "matches, too, but a wildcard has priority"
	}
}

// end says why a search found no limits.
func (p *explainer) end(s *rules.Search, entries []rules.Entry) {
	last := len(s.Levels) - 1
	if s.Rule != nil || last >= 0 && s.Levels[last].Chosen == nil {
		return
	}
	switch rest := len(entries) - len(s.Levels); {
	case rest > 0:
		p.printf("  no limit: the rule has no descriptors below it, but the request continues with %s\n", entryText(entries[len(s.Levels)]))
	case len(s.Below) > 0:
		p.printf("  no limit: the rule has none; with another entry: %s\n", listed(s.Below))
	default:
		p.printf("  no limit: the rule has none, so the request is exempt\n")
	}
}

// limit describes a limit, and its decision for a new key.
func (p *explainer) limit(a *rules.Applied) {
	if a.Limit == nil {
		p.printf("  limit %s: unlimited: grants everything without the store\n", a.Rule.Path)
		return
	}
	p.printf("  limit %s: %s\n", plainly(a.Limit.Name), limitText(a.Limit))
	if a.Rule.Overlay != (config.Position{}) && !a.Rule.OnTrial {
		p.printf("    overlay  %s changes it; the rule says %s\n", a.Rule.Overlay, a.Rule.Sent)
	}
	p.printf("    kind     %s\n", p.kind(a))
	if b := a.Of.Budget; b != nil {
		p.printf("    budget   %s of %s, shared by all rules that charge it\n", plainly(b.Name), b.At)
	}
	if keep := a.Act.Charges[a.Charge].Keep; keep > 0 {
		p.printf("    keep     %s: granted only if that much stays free\n", config.AmountText(a.Limit.Meter, keep))
	}
	if !a.Rule.OnTrial {
		p.printf("    failure  on_store_failure: %s\n", a.Of.OnStoreFailure)
	}
	p.printf("    key      %s\n", a.Act.Charges[a.Charge].Key)
	if most := a.Of.MaxKeys; most > 0 {
		p.printf("    keys     max_keys: %d for each instance; further keys share one budget\n", most)
	}
	p.printf("    new key  %s\n", decisionText(a))
	if modes := modesOf(a.Rule); len(modes) > 0 {
		p.printf("    modes    %s\n", strings.Join(modes, "; "))
	}
}

// kind says which limits are charged together with the limit.
func (p *explainer) kind(a *rules.Applied) string {
	switch together := len(a.Act.Charges); {
	case a.Of.Alternative > 0:
		return fmt.Sprintf("alternative %d of %d: the first one with room is charged", a.Of.Alternative, a.Rule.Alternatives)
	case !a.Rule.Grouped:
		return "as envoyproxy/ratelimit: decided separately, counts refused requests"
	case a.Rule.OnTrial:
		return "decided separately, because it is on trial"
	case a.Rule.Shadow:
		return "decided separately, because it only watches"
	case a.Rule.Unenforced > 0:
		return "decided separately, because it is not enforced for all keys"
	case together == 1:
		return "the only limit of its act"
	default:
		return fmt.Sprintf("one act of %d limits: all of them are charged, or none", together)
	}
}

func modesOf(r *rules.Rule) []string {
	var modes []string
	switch {
	case r.OnTrial:
		modes = append(modes, "trial: never refuses")
	case r.Unenforced > 0 && r.Shadow:
		modes = append(modes, "enforce: "+r.Enforce()+" of the keys, but not this one: never refuses it")
	case r.Unenforced > 0:
		modes = append(modes, "enforce: "+r.Enforce()+" of the keys, including this one")
	case r.Shadow:
		modes = append(modes, "shadow_mode: never refuses")
	}
	if r.Quota {
		modes = append(modes, "quota_mode: refuses only if all quota rules do")
	}
	if r.ShareThreshold {
		modes = append(modes, "share_threshold: all values that match share one budget")
	}
	if r.RLQS {
		modes = append(modes, "quota: Envoys may lease units")
	}
	if len(r.Replaces) > 0 {
		modes = append(modes, "replaces "+listed(r.Replaces))
	}
	return modes
}

// answer prints the answer to the whole request.
func (p *explainer) answer() {
	if len(p.found.Plan.Applied) == 0 {
		p.printf("answer: allowed, because no limit applies\n")
		return
	}
	quota, quotaRefuses, refused := false, true, false
	for i := range p.found.Plan.Applied {
		a := &p.found.Plan.Applied[i]
		no := a.Decision().Outcome == weir.Refused
		if a.Rule.Quota {
			quota, quotaRefuses = true, quotaRefuses && no
		} else {
			refused = refused || no
		}
	}
	if refused || quota && quotaRefuses {
		p.printf("answer: refused, even if no key was used before\n")
		return
	}
	p.printf("answer: allowed, if no key was used before\n")
}
