package httpapi

import (
	"cmp"
	"context"
	"io"
	"net/http"
)

// A Check is one thing that must be well for the server to be ready.
type Check struct {
	// Name says what was checked: "store".
	Name string
	// Err says what is wrong, nil if nothing is.
	Err error
	// Bearable errors leave the server ready, but degraded: policies answer, or the
	// last good rules.
	Bearable bool
}

// healthz says that the process lives, whatever else is wrong.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// The states of a server.
const (
	stateHealthy  = "healthy"
	stateDegraded = "degraded"
	stateNotReady = "not ready"
)

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
	answer := readiness{Ready: true, State: stateHealthy, Checks: []checkOutcome{}}
	if o.Ready != nil {
		for _, c := range o.Ready(ctx) {
			answer.add(c, details)
		}
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, "application/json", status, &answer)
}

func (a *readiness) add(c Check, details bool) {
	outcome := checkOutcome{Name: c.Name, OK: c.Err == nil}
	if c.Err != nil {
		switch {
		case !c.Bearable:
			a.Ready, a.State = false, stateNotReady
		case a.Ready:
			a.State = stateDegraded
		}
		if details {
			outcome.Detail = c.Err.Error()
		}
	}
	a.Checks = append(a.Checks, outcome)
}
