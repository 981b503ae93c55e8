package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	problemdoc "github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
)

type problem = problemdoc.Document

// badRequest is the problem of a request whose field is outside the contract.
func badRequest(e *weir.InvalidError) *problem {
	return &problem{
		Status: http.StatusBadRequest,
		Detail: fmt.Sprintf("%s is %s: want %s", e.Field, e.Value, e.Want),
		Field:  e.Field,
	}
}

// refusal is the problem of a request that its limits refused. Where headers do not
// tell the limits, it does not either.
func (a *api) refusal(v *verdict, status int) *problem {
	if a.Headers == HeadersNone {
		return &problem{Type: problemdoc.QuotaExceeded, Title: "Quota exceeded", Status: status, Detail: "too many requests"}
	}
	return &problem{
		Type:     problemdoc.QuotaExceeded,
		Title:    "Quota exceeded",
		Status:   status,
		Detail:   why(v.speaker),
		Violated: v.violated(),
	}
}

// why says which limit refused, and until when.
func why(r *ruling) string {
	limit := "limit " + strconv.Quote(r.applied.Limit.Name) + " (" + r.applied.Limit.String() + ")"
	if r.decision.Source == weir.SourceFailClosed {
		return limit + " refuses everything while the store is away"
	}
	if r.decision.RetryAfter == weir.Never {
		return limit + " can never grant this cost"
	}
	seconds := max(1, roundUp(r.decision.RetryAfter, time.Second))
	return limit + " is used up; it has room in " + strconv.FormatInt(seconds, 10) + " s"
}

// idProblems are what can be wrong with an id that the store has looked up.
var idProblems = map[weir.IDError]problem{
	weir.ErrUnknownID:  {Status: http.StatusNotFound, Code: "unknown_id", Field: "id"},
	weir.ErrIDReused:   {Status: http.StatusConflict, Code: "id_reused", Field: "id"},
	weir.ErrSettled:    {Status: http.StatusConflict, Code: "settled", Field: "id"},
	weir.ErrReleased:   {Status: http.StatusConflict, Code: "released", Field: "id"},
	weir.ErrOverRefund: {Status: http.StatusUnprocessableEntity, Code: "over_refund", Field: "cost"},
}

// idProblem is the problem of an id, or nil if the error is about something else.
func idProblem(err error) *problem {
	var id weir.IDError
	if !errors.As(err, &id) {
		return nil
	}
	p, known := idProblems[id]
	if !known {
		return nil
	}
	p.Detail = strings.TrimPrefix(id.Error(), "weir: ")
	return &p
}

// problemOf finds the problem that tells an error to the caller, and whether it
// is the store's.
func problemOf(err error) (p *problem, failed bool) {
	var invalid *weir.InvalidError
	var forbidden *callers.ForbiddenError
	if p := idProblem(err); p != nil {
		return p, false
	}
	switch {
	case errors.As(err, &p):
		return p, false
	case errors.As(err, &forbidden):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Detail: err.Error()}, false
	case errors.As(err, &invalid):
		return badRequest(invalid), false
	case errors.Is(err, weir.ErrInvalid):
		return &problem{Status: http.StatusBadRequest, Detail: err.Error()}, false
	}
	return &problem{
		Status: http.StatusServiceUnavailable,
		Detail: "the store reached no decision",
	}, true
}

// fail answers a call that got no decision.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, failed := problemOf(err)
	if failed {
		a.report(r, err)
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	p.Write(w, r)
}

// writeJSON sends v. What cannot be sent any more is lost: the client is gone.
func writeJSON(w http.ResponseWriter, contentType string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("httpapi: answer does not marshal: %v", err))
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// shownBytes bounds what a problem repeats of the request.
const shownBytes = 80

// invalid is the mistake of a field, which the request may have named itself.
func invalid(field, value, want string) *weir.InvalidError {
	return &weir.InvalidError{Field: shown(cmp.Or(field, `""`)), Value: shown(value), Want: want}
}

func shown(text string) string {
	if len(text) > shownBytes {
		return strings.ToValidUTF8(text[:shownBytes], "") + "…"
	}
	return text
}
