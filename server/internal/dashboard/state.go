package dashboard

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/store"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const (
	maxTop       = 10
	maxModels    = 50
	maxOverrides = 50
	// patience is how long a page waits for the store.
	patience = 500 * time.Millisecond
	// maxThrottled is the length, in bytes, below which keys of CL.THROTTLE are surely
	// complete.
	maxThrottled = 240
)

// A state is everything that a page shows but the rules.
type state struct {
	At int64 `json:"at"` // in Unix milliseconds
	// State is the state of /readyz; Reason is the check that caused it.
	State  string       `json:"state"`
	Reason string       `json:"reason,omitempty"`
	Checks []check      `json:"checks"`
	Facts  []Fact       `json:"facts"`
	Nodes  []store.Node `json:"nodes"`
	// StoreError is the error of an outage of the store.
	StoreError string `json:"store_error,omitempty"`
	Loaded     int64  `json:"loaded"` // when the rules came into force, in Unix microseconds
	// ReloadError is the error of files that are not in force.
	ReloadError string `json:"reload_error,omitempty"`

	Limits []limitState `json:"limits"`
	// LimitsLeft is the number of limits that are not shown.
	LimitsLeft int `json:"limits_left,omitempty"`
	// Budgets are those that rules share, BudgetsLeft how many are not shown.
	Budgets     []budgetState `json:"budgets"`
	BudgetsLeft int           `json:"budgets_left,omitempty"`
	// Models is what callers use of language models, ModelsLeft how many are not shown.
	Models     []traffic.ModelUse `json:"models"`
	ModelsLeft int                `json:"models_left,omitempty"`
	// Dollars are the budgets of callers of language models, by what they are about.
	Dollars []dollarsState `json:"dollars"`
	// Leases are those of Envoys, LeasesLeft how many are not shown.
	Leases     []leaseState `json:"leases"`
	LeasesLeft int          `json:"leases_left,omitempty"`
	// Minute is when the last minute of the limits and budgets begins, in Unix seconds.
	Minute int64 `json:"minute"`
	// Instances is the number of instances on the store; 0 if nobody else can be.
	Instances int        `json:"instances,omitempty"`
	Refused   []topState `json:"refused"`
	Used      []topState `json:"used"`

	// UnmatchedTotal counts requests that no rule applied to, Unmatched has the latest.
	UnmatchedTotal uint64           `json:"unmatched_total"`
	Unmatched      []unmatchedState `json:"unmatched"`

	Overrides     []overrideState `json:"overrides"`
	OverridesLeft int             `json:"overrides_left,omitempty"`

	Chart    *chart    `json:"chart,omitempty"`
	Refusals []refusal `json:"refusals,omitempty"`
	Missed   uint64    `json:"missed,omitempty"`
}

type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// A key is a key, with the domain, entries and budget by which the admin API knows it, and
// a label for people.
type key struct {
	Key     string   `json:"key"`
	Label   string   `json:"label"`
	Domain  string   `json:"domain,omitempty"`  // empty if the key is known by a digest only
	Entries []string `json:"entries,omitempty"` // KEY=VALUE
	Budget  string   `json:"budget,omitempty"`
}

type topState struct {
	key
	Rule  string `json:"rule"`
	Mode  string `json:"mode,omitempty"` // of the rule, if it does not refuse all keys
	Count uint64 `json:"count"`
	Error uint64 `json:"error,omitempty"`
}

type overrideState struct {
	key
	Limit string `json:"limit"` // what holds instead: "blocked", "no limit", a limit or a raise
	Until int64  `json:"until"` // in Unix milliseconds
}

type refusal struct {
	key
	At         int64  `json:"at"` // in Unix milliseconds
	Rule       string `json:"rule"`
	Cost       int64  `json:"cost"`
	Source     string `json:"source"`
	RetryAfter int64  `json:"retry_after_ms"` // -1: never
	Shadow     bool   `json:"shadow,omitempty"`
}

// now returns the current state.
func (d *Dashboard) now(ctx context.Context) *state {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	loaded, store := d.Loaded(), d.Store(ctx)
	s := &state{
		At: time.Now().UnixMilli(), Checks: []check{}, Facts: store.Facts, Nodes: store.Nodes, Loaded: loaded.At.UnixMicro(), Instances: store.Instances,
		Refused: d.top(d.Traffic.TopRefused(maxTop), modesOf(d.Rules())), Used: d.top(d.Traffic.TopUsed(maxTop), nil),
	}
	if loaded.Err != nil {
		s.ReloadError = loaded.Err.Error()
	}
	if store.Err != nil {
		s.StoreError = store.Err.Error()
	}
	s.UnmatchedTotal, s.Unmatched = d.Unmatched.total.Load(), d.Unmatched.states(d.Rules())
	s.judge(d.Checks(ctx))
	lately := d.Traffic.History(recent)
	s.Minute = lately.Start.Unix()
	s.Limits, s.LimitsLeft = d.limits(lately)
	s.Budgets, s.BudgetsLeft = budgets(lately.Classes, d.Rules())
	s.Leases, s.LeasesLeft = d.leases()
	s.Models, s.ModelsLeft = d.Traffic.Models.Top(maxModels)
	s.Dollars = d.dollars(ctx)
	s.Overrides, s.OverridesLeft = d.overrides(d.Overrides())
	return s
}

// judge sets the checks, and the state that follows from them. The reason is a check that
// keeps the server from being ready, if there is one.
func (s *state) judge(checks []httpapi.Check) {
	s.State = httpapi.StateOf(checks)
	bearable := s.State == httpapi.StateDegraded
	for _, c := range checks {
		item := check{Name: c.Name, OK: c.Err == nil}
		if c.Err != nil {
			item.Detail = strings.TrimPrefix(strings.TrimPrefix(c.Err.Error(), "the "+c.Name+" "), "is ")
			if s.Reason == "" && c.Bearable == bearable {
				s.Reason, _, _ = strings.Cut(c.Name+": "+item.Detail, "\n")
			}
		}
		s.Checks = append(s.Checks, item)
	}
}

func (d *Dashboard) top(keys []traffic.TopKey, modes map[[2]string]string) []topState {
	all := make([]topState, 0, len(keys))
	for _, k := range keys {
		named := d.key(k.Key)
		all = append(all, topState{named, k.Rule, modes[[2]string{named.Domain, k.Rule}], k.Count, k.Error})
	}
	return all
}

func (d *Dashboard) overrides(in []override.Override) (all []overrideState, left int) {
	all = []overrideState{}
	for _, o := range in[:min(len(in), maxOverrides)] {
		limit := "no limit"
		switch {
		case o.Raise != nil:
			limit = config.AmountText(o.Raise.Meter, o.Raise.Units) + " more (raise " + o.Raise.ID + ")"
		case o.Limit != nil && o.Limit.Count == 0:
			limit = "blocked"
		case o.Limit != nil:
			limit = admin.LimitText(o.Limit)
		}
		all = append(all, overrideState{d.key(o.Key), limit, o.Until.UnixMilli()})
	}
	return all, len(in) - len(all)
}

func (d *Dashboard) refusal(r *traffic.Refusal) refusal {
	return refusal{
		key: d.key(r.Key), At: r.At.UnixMilli(), Rule: shown(r.Rule, r.Trial), Cost: r.Cost, Source: r.Source.String(), Shadow: r.Shadow && !r.Trial,
		RetryAfter: jsonbody.Millis(r.RetryAfter),
	}
}

func (d *Dashboard) key(name string) key {
	k := key{Key: name, Label: name}
	if d.ThrottleKey != nil {
		if asked, found := strings.CutPrefix(name, d.ThrottleKey("")); found && len(name) < maxThrottled {
			k.Domain, k.Entries, k.Label = admin.ThrottleDomain, []string{"key=" + asked}, "key="+asked
			return k
		}
	}
	domain, entries, ok := rules.ParseKey(name)
	if !ok {
		return k
	}
	k.Domain, k.Budget = domain, rules.BudgetOf(name)
	for _, e := range entries {
		k.Entries = append(k.Entries, e.Key+"="+e.Value)
	}
	label := k.Entries
	if k.Budget != "" {
		label = append(slices.Clip(label), "budget "+k.Budget)
	}
	k.Label = strings.Join(label, ", ")
	return k
}
