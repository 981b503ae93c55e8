package rules

import (
	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/server/internal/config"
)

// Forms returns the rule and, if it has them, its ForUnenforced and its Trial, each a rule with
// limits of its own.
func (r *Rule) Forms() []*Rule {
	forms := []*Rule{r}
	for _, other := range []*Rule{r.ForUnenforced, r.Trial} {
		if other != nil {
			forms = append(forms, other)
		}
	}
	return forms
}

// Enforce returns the part of the keys that the rule is enforced for, in percent; empty if
// that is all of them.
func (r *Rule) Enforce() string {
	if r.Unenforced == 0 {
		return ""
	}
	return (config.Whole - r.Unenforced).String()
}

// rollOut makes the forms in which a rule of the path comes to be enforced.
func (r *Rule) rollOut(d *config.Descriptor, path string) error {
	if r.Unenforced > 0 {
		unenforced, err := r.form(d.Limits, path)
		if err != nil {
			return err
		}
		r.ForUnenforced = unenforced
	}
	if d.Trial == nil {
		return nil
	}
	trial, err := r.form([]config.RateLimit{*d.Trial}, path)
	if err != nil {
		return err
	}
	trial.OnTrial, trial.Grouped, trial.Unlimited, trial.Unit, trial.Name = true, true, false, d.Trial.Unit, d.Trial.Name
	trial.Unenforced, trial.Quota = 0, false
	trial.Limits[0].suffix = trialSuffix(d.Trial, path)
	r.Trial = trial
	return nil
}

// form returns the rule with other limits, as a shadow rule.
func (r *Rule) form(limits []config.RateLimit, path string) (*Rule, error) {
	form := *r
	form.Shadow, form.ForUnenforced, form.Trial, form.counter = true, nil, nil, nil
	form.Limits, form.all, form.Alternatives, form.Replaces, form.owned = nil, nil, 0, nil, false
	if err := form.compile(limits, path); err != nil {
		return nil, err
	}
	return &form, nil
}

// trialSuffix ends the keys of a trial. The position of a limit is a number, never a
// word.
func trialSuffix(l *config.RateLimit, path string) string {
	suffix := []byte(";" + path + "#trial")
	if l.Name != "" {
		suffix = appendEscaped(append(suffix, ';'), l.Name, "")
	}
	return string(suffix)
}

// settle decides whether the rule is enforced for the budget of that text, and
// returns the rule or its ForUnenforced. The hash is the same everywhere and for ever,
// so that a budget stays where it is while the part grows.
func (r *Rule) settle(budget []byte) *Rule {
	if r.ForUnenforced != nil && config.Part(siphash.Hash(0, 0, budget)%uint64(config.Whole)) >= config.Whole-r.Unenforced {
		return r.ForUnenforced
	}
	return r
}
