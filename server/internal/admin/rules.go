package admin

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// rulesAnswer is the body of GET /v1/rules.
type rulesAnswer struct {
	Path     string `json:"path"`
	Revision string `json:"revision"`
	LoadedAt string `json:"loaded_at"`
	// Version is the name that a management server gives the rules.
	Version string `json:"version,omitempty"`
	// ReloadError is the error of files that are not in force.
	ReloadError string       `json:"reload_error,omitempty"`
	Domains     []string     `json:"domains"`
	Rules       []ruleAnswer `json:"rules"`
}

type ruleAnswer struct {
	Path      string       `json:"path"`
	At        string       `json:"at"`
	Name      string       `json:"name,omitempty"`
	Unlimited bool         `json:"unlimited,omitempty"`
	Shadow    bool         `json:"shadow,omitempty"`
	Quota     bool         `json:"quota,omitempty"`
	Grouped   bool         `json:"grouped"`
	Replaces  []string     `json:"replaces,omitempty"`
	Limits    []namedLimit `json:"limits"`
	// Enforce is the percentage of keys that the limits refuse; empty: all.
	Enforce string `json:"enforce,omitempty"`
	// Trial is a limit on trial beside the others.
	Trial *namedLimit `json:"trial,omitempty"`
}

type namedLimit struct {
	Name           string `json:"name"`
	Algorithm      string `json:"algorithm"`
	Limit          string `json:"limit"`
	OnStoreFailure string `json:"on_store_failure,omitempty"`
	Budget         string `json:"budget,omitempty"`
	Keep           int64  `json:"keep,omitempty"`
}

// rules answers with the rules in force, and where they come from.
func (a *api) rules(w http.ResponseWriter, _ *http.Request) {
	set := a.Rules()
	answer := rulesAnswer{Domains: set.Domains(), Rules: []ruleAnswer{}}
	if a.Loaded != nil {
		l := a.Loaded()
		answer.Path, answer.Revision, answer.Version, answer.LoadedAt = l.Path, l.Revision, l.Version, l.At.UTC().Format(time.RFC3339Nano)
		if l.Err != nil {
			answer.ReloadError = l.Err.Error()
		}
	}
	for _, r := range set.Rules() {
		answer.Rules = append(answer.Rules, ruleOf(r))
	}
	jsonbody.WriteIndented(w, &answer)
}

func ruleOf(r *rules.Rule) ruleAnswer {
	answer := ruleAnswer{
		Path: r.Path, At: r.At.String(), Name: r.Name, Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota,
		Grouped: r.Grouped, Replaces: r.Replaces, Limits: []namedLimit{}, Enforce: r.Enforce(),
	}
	for _, l := range r.Limits {
		named := namedOf(l.Limit, l.OnStoreFailure.String())
		named.Budget, named.Keep = l.Budget.String(), l.Keep
		answer.Limits = append(answer.Limits, named)
	}
	if r.Trial != nil {
		trial := namedOf(r.Trial.Limits[0].Limit, "")
		answer.Trial = &trial
	}
	return answer
}

func namedOf(l *weir.Limit, failure string) namedLimit {
	return namedLimit{Name: l.Name, Algorithm: l.Algorithm.String(), Limit: config.LimitText(l), OnStoreFailure: failure}
}
