package httpapi

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/server/internal/jsonbody"
)

// A Check is the state of one part of the server.
type Check struct {
	// Name names the part: "store".
	Name string
	// Err is nil if the part is healthy.
	Err error
	// Brief describes Err without names of files and hosts, for callers without a
	// token.
	Brief string
	// Bearable errors leave the server ready, but degraded: policies answer, or the
	// last good rules.
	Bearable bool
	// Info describes the part while it is healthy, for callers with a token.
	Info string
}

// healthz answers as long as the process is alive, whatever else is wrong.
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

// StateOf returns the state of the server: healthy if no check has an error, degraded if
// all errors are bearable, else not ready.
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

// readyz says whether to send calls here. Details may name files and hosts: only callers
// with a token see them.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	writeReadiness(w, r, &a.Options, a.Trusted != nil && a.Trusted(r))
}

// Readiness returns a handler that answers like /readyz of [New], with all details, for
// listeners that only administrators reach. It uses Ready and Timeout.
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
		case c.Err == nil && details:
			outcome.Detail = c.Info
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
	w.Header()["Cache-Control"] = noStore
	jsonbody.Write(w, status, &answer)
}
