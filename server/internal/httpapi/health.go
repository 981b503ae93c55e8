package httpapi

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
)

// A Check is one thing that must be well for the server to be ready.
type Check struct {
	// Name says what was checked: "store".
	Name string
	// Err says what is wrong, nil if nothing is.
	Err error
	// Brief says what is wrong without names of files and hosts: for everybody.
	Brief string
	// Bearable errors leave the server ready, but degraded: policies answer, or the
	// last good rules.
	Bearable bool
}

// healthz says that the process lives, whatever else is wrong.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// The states of a server, see [StateOf].
const (
	StateHealthy  = "healthy"
	StateDegraded = "degraded"
	StateNotReady = "not ready"
)

// StateOf returns what the checks say of the server: healthy if all are well, degraded
// if all errors are bearable, else not ready.
func StateOf(checks []Check) string {
	state := StateHealthy
	for _, c := range checks {
		switch {
		case c.Err == nil:
		case !c.Bearable:
			return StateNotReady
		default:
			state = StateDegraded
		}
	}
	return state
}

type readiness struct {
	Ready  bool           `json:"ready"`
	State  string         `json:"state"`
	Checks []checkOutcome `json:"checks"`
}

type checkOutcome struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// readyz says whether calls should be sent here. Details may name files and hosts:
// only callers that showed a token read them.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	writeReadiness(w, r, &a.Options, a.Trusted != nil && a.Trusted(r))
}

// Readiness answers as /readyz of [New], with the details of each check: for a listener
// that only lets administrators in. It uses Ready and Timeout.
func Readiness(o Options) http.Handler {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeReadiness(w, r, &o, true) })
}

func writeReadiness(w http.ResponseWriter, r *http.Request, o *Options, details bool) {
	ctx, cancel := context.WithTimeout(r.Context(), o.Timeout)
	defer cancel()
	var checks []Check
	if o.Ready != nil {
		checks = o.Ready(ctx)
	}
	answer := readiness{State: StateOf(checks), Checks: []checkOutcome{}}
	answer.Ready = answer.State != StateNotReady
	for _, c := range checks {
		outcome := checkOutcome{Name: c.Name, OK: c.Err == nil}
		switch {
		case c.Err != nil && details:
			outcome.Detail = strings.ReplaceAll(c.Err.Error(), "\n", "; ")
		case c.Err != nil:
			outcome.Detail = c.Brief
		}
		answer.Checks = append(answer.Checks, outcome)
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, "application/json", status, &answer)
}
