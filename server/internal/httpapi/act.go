package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// maxBody is the size of the largest body, in bytes.
const maxBody = 256 << 10

// pending is the answer to an act that ends a charge and that the store will get later.
type pending struct {
	Pending bool `json:"pending"`
}

// A posted is the memory of a POST, reused by later ones. It must not be copied: it points into
// itself.
type posted struct {
	body    actBody
	request rules.Request
	verdict verdict
	out     []byte // the body of the answer

	// Memory for most requests.
	plain       plainMemory
	descriptors [few][]rules.Entry
	entries     [fewEntries]rules.Entry
	calls       [few]rules.Call
}

// keptOut is the size of the largest answer whose memory is kept.
const keptOut = 8 << 10

var posts = sync.Pool{New: func() any { return new(posted) }}

// act answers a POST for one kind of act.
func (a *api) act(w http.ResponseWriter, r *http.Request, kind weir.Kind) {
	p := posts.Get().(*posted)
	req, err := a.readAct(w, r, p, kind)
	if tooLarge := new(http.MaxBytesError); a.RefuseOversized && kind == acts.KindTake && errors.As(err, &tooLarge) {
		w.Header()["Cache-Control"] = noStore
		jsonbody.Write(w, http.StatusTooManyRequests, actAnswer{Limits: []limitAnswer{}})
		return
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	v := &p.verdict
	switch err := a.decide(r, req, v); {
	case acts.Kept(err) && (kind == acts.KindRelease || kind == acts.KindRefund):
		w.Header()["Cache-Control"] = noStore
		jsonbody.Write(w, http.StatusAccepted, pending{true})
		return
	case err != nil:
		a.fail(w, r, err)
		return
	}
	a.writeHeaders(w.Header(), v)
	status := http.StatusOK
	if !v.allowed {
		status = http.StatusTooManyRequests
	}
	p.out = v.appendJSON(p.out[:0])
	jsonbody.Send(w, status, p.out)
	// Not deferred: a store that panics may still use the memory.
	v.plan.Free()
	out := p.out[:0]
	if cap(out) > keptOut {
		out = nil
	}
	*p = posted{out: out}
	posts.Put(p)
}

// readAct reads the request of a POST, within the bounds and the budget.
func (a *api) readAct(w http.ResponseWriter, r *http.Request, p *posted, kind weir.Kind) (*rules.Request, error) {
	if wrong := jsonbody.Unsupported(r.Header, acceptable); wrong != nil {
		return nil, wrong
	}
	body, err := a.Budget.ReadBody(w, r, maxBody)
	if err != nil {
		return nil, a.bodyError(w, err)
	}
	defer body.Close()
	if p.readPlain(body.Text) {
		return p.toRequest(kind)
	}
	outline := admission.OutlineOf(body.Text)
	switch {
	case outline.Deep:
		return nil, problem.Invalid("body", "nested too deeply", "one JSON object")
	case outline.Descriptors > a.Bounds.MostDescriptors()+weir.MaxCharges: // limits in the call included
		return nil, a.Bounds.CheckDescriptors(outline.Descriptors)
	case outline.Entries > rules.MaxEntries:
		return nil, rules.TooManyEntries(outline.Largest, outline.Entries)
	}
	if err := body.Take(&outline); err != nil {
		return nil, a.bodyError(w, err)
	}
	if err := p.decode(body.Text); err != nil {
		return nil, err
	}
	return p.toRequest(kind)
}

// readPlain reads a usual body. It reports false for any other.
func (p *posted) readPlain(text []byte) bool { return p.body.readPlain(text, &p.plain) }

// decode reads any body. The error is a [*weir.InvalidError].
func (p *posted) decode(text []byte) error {
	p.body = actBody{}
	return jsonbody.Decode(text, &p.body, actFields)
}

// acceptable accepts JSON, no media type, and what programs claim that were told none: curl -d
// claims a form, and a browser's fetch plain text.
func acceptable(mediaType string) bool {
	switch mediaType {
	case "", "application/json", "application/x-www-form-urlencoded", "text/plain":
		return true
	}
	return strings.HasSuffix(mediaType, "+json")
}

// bodyError describes why a body was not read.
func (a *api) bodyError(w http.ResponseWriter, err error) error {
	switch tooLarge := new(http.MaxBytesError); {
	case errors.As(err, &tooLarge):
		a.rejected(admission.Message)
		return err
	case errors.Is(err, admission.ErrFull):
		a.rejected(admission.Memory)
		w.Header().Set("Retry-After", "1")
		return &problem.Document{
			Status: http.StatusServiceUnavailable, Code: "request_memory",
			Detail: "requests that are being received use too much memory",
		}
	case problem.Of(err) != nil:
		return err
	}
	return jsonbody.CutShort()
}

func (a *api) rejected(why admission.Reason) {
	if a.Rejected != nil {
		a.Rejected(why)
	}
}

// actBody is the body of a POST. Pointers are nil for absent fields.
type actBody struct {
	Domain      string            `json:"domain"`
	Descriptors []descriptorBody  `json:"descriptors"`
	Limits      []limitBody       `json:"limits"`
	Cost        *int64            `json:"cost"`
	Costs       map[string]*int64 `json:"costs"`
	Record      *bool             `json:"record"`
	Mode        *string           `json:"mode"`
	MaxWaitMS   *int64            `json:"max_wait_ms"`
	ID          string            `json:"id"`
	HoldMS      *int64            `json:"hold_ms"`
	Dry         bool              `json:"dry"`
}

const actFields = "domain, descriptors, limits, cost, costs, record, mode, max_wait_ms, id, hold_ms or dry; in descriptors: entries; in entries: key and value; in limits: key, limit, name, cost and keep"

// limitBody is a limit in the call.
type limitBody struct {
	Key   *string `json:"key"`
	Limit *string `json:"limit"`
	Name  string  `json:"name"`
	Cost  *int64  `json:"cost"`
	Keep  int64   `json:"keep"`
}

type descriptorBody struct {
	Entries []entryBody `json:"entries"`
}

type entryBody struct {
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// toRequest returns the request of a body that was read. The error is a [*weir.InvalidError].
func (p *posted) toRequest(kind weir.Kind) (*rules.Request, error) {
	body := &p.body
	if err := body.checkParts(kind); err != nil {
		return nil, err
	}
	req := &p.request
	*req = rules.Request{Kind: kind, Domain: body.Domain, ID: body.ID, Descriptors: p.descriptors[:0]}
	memory := p.entries[:0]
	for i, d := range body.Descriptors {
		from := len(memory)
		var err error
		if memory, err = appendEntries(memory, d.Entries, i); err != nil {
			return nil, err
		}
		req.Descriptors = append(req.Descriptors, memory[from:len(memory):len(memory)])
	}
	var err error
	if req.Calls, err = body.appendCalls(p.calls[:0]); err != nil {
		return nil, err
	}
	return req, body.setTerms(req)
}

// callKinds are the kinds of act that are for limits in the call only.
var callKinds = []weir.Kind{acts.KindReset, acts.KindRecord}

// checkParts checks that a body has what its kind of act is about, and sets the domain of
// limits in a call without one.
func (b *actBody) checkParts(kind weir.Kind) error {
	switch only := slices.Contains(callKinds, kind); {
	case only && len(b.Descriptors) > 0:
		return problem.Invalid("descriptors", "given", "none: "+kind.String()+" is for limits")
	case only && len(b.Limits) == 0:
		return problem.Invalid("limits", "missing", "at least one limit")
	case b.Domain == "" && len(b.Limits) > 0:
		b.Domain = rules.DefaultDomain
	case b.Domain == "":
		return problem.Invalid("domain", "missing", "the domain of the rules")
	case len(b.Descriptors) == 0 && len(b.Limits) == 0:
		return problem.Invalid("descriptors", "missing", "at least one descriptor or, in limits, one limit")
	}
	return nil
}

// appendCalls appends the limits in the call, without their costs.
func (b *actBody) appendCalls(calls []rules.Call) ([]rules.Call, error) {
	if len(b.Limits) == 0 {
		return nil, nil
	}
	for i, l := range b.Limits {
		switch {
		case l.Key == nil:
			return nil, invalidLimit(i, "key", "missing", "who or what is limited")
		case l.Limit == nil:
			return nil, invalidLimit(i, "limit", "missing", `a limit such as "100/min"`)
		}
		calls = append(calls, rules.Call{Key: *l.Key, Limit: *l.Limit, Name: l.Name, Keep: l.Keep})
	}
	return calls, nil
}

func invalidLimit(i int, field, value, want string) error {
	return &weir.InvalidError{List: "limits", Index: i, Field: field, Value: value, Want: want}
}

// appendEntries appends the entries of the i-th descriptor. Absent keys and values are
// errors: with a default, all callers that forget one would share a budget.
func appendEntries(entries []rules.Entry, body []entryBody, i int) ([]rules.Entry, error) {
	if len(body) == 0 {
		return nil, problem.Invalid(fmt.Sprintf("descriptors[%d].entries", i), "missing", "at least one entry")
	}
	for j, e := range body {
		switch {
		case e.Key == nil:
			return nil, problem.Invalid(fmt.Sprintf("descriptors[%d].entries[%d].key", i, j), "missing", "a string")
		case e.Value == nil:
			return nil, problem.Invalid(fmt.Sprintf("descriptors[%d].entries[%d].value", i, j), "missing", "a string")
		}
		entries = append(entries, rules.Entry{Key: *e.Key, Value: *e.Value})
	}
	return entries, nil
}

// setTerms sets the cost, the mode and the hold of a request.
func (b *actBody) setTerms(req *rules.Request) error {
	if err := b.checkGiven(req.Kind); err != nil {
		return err
	}
	if b.Record != nil && *b.Record {
		req.Kind = acts.KindRecord
	}
	if err := b.setCost(req); err != nil {
		return err
	}
	if err := b.setCallCosts(req); err != nil {
		return err
	}
	if err := b.setMode(req); err != nil {
		return err
	}
	if len(req.Descriptors) == 0 {
		req.Cost = 0 // each limit has its own
	}
	req.Dry = b.Dry
	var err error
	req.Hold, err = parseMillis("hold_ms", b.HoldMS, 0)
	return err
}

// ofKinds are the fields that only some kinds of act have.
var ofKinds = []struct {
	name  string
	given func(*actBody) bool
	kinds []weir.Kind
}{
	{"cost", func(b *actBody) bool { return b.Cost != nil }, []weir.Kind{acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRecord}},
	{"costs", func(b *actBody) bool { return b.Costs != nil }, []weir.Kind{acts.KindTake, acts.KindSettle}},
	{"record", func(b *actBody) bool { return b.Record != nil }, []weir.Kind{acts.KindSettle}},
	{"mode", func(b *actBody) bool { return b.Mode != nil }, []weir.Kind{acts.KindTake}},
	{"max_wait_ms", func(b *actBody) bool { return b.MaxWaitMS != nil }, []weir.Kind{acts.KindTake}},
	{"dry", func(b *actBody) bool { return b.Dry }, []weir.Kind{acts.KindTake}},
	{"hold_ms", func(b *actBody) bool { return b.HoldMS != nil }, []weir.Kind{acts.KindTake, acts.KindRenew}},
}

// checkGiven refuses fields that a kind of act would ignore.
func (b *actBody) checkGiven(kind weir.Kind) error {
	for i := range ofKinds {
		if f := &ofKinds[i]; f.given(b) && !slices.Contains(f.kinds, kind) {
			return problem.Invalid(f.name, "given", "none: "+kind.String()+" has none")
		}
	}
	switch record := b.Record != nil && *b.Record; {
	case record && len(b.Limits) > 0:
		return problem.Invalid("record", "true", "none beside limits: POST /v1/record records them")
	case record && b.ID != "":
		return problem.Invalid("id", strconv.Quote(b.ID), `none beside "record":true, which charges without a take`)
	case slices.Contains(callKinds, kind) && b.ID != "":
		return problem.Invalid("id", strconv.Quote(b.ID), "none: "+kind.String()+" has none")
	case slices.Contains(callKinds, kind), kind == acts.KindRefund && len(b.Descriptors) == 0:
	case kind != acts.KindTake && b.ID == "" && !record:
		return problem.Invalid("id", "missing", "the id of the take to "+kind.String())
	}
	return nil
}

// setCost sets the cost: 1 unless a take states it; refunds and settlements must state it.
func (b *actBody) setCost(req *rules.Request) error {
	least := int64(0)
	switch req.Kind {
	case acts.KindTake:
		req.Cost = 1
	case acts.KindRefund:
		least = 1
	case acts.KindRelease, acts.KindRenew, acts.KindReset:
		return nil
	}
	switch {
	case b.Costs != nil && len(b.Descriptors) == 0:
		return problem.Invalid("costs", "given", "none beside limits alone, which have a cost each")
	case b.Costs != nil && b.Cost != nil:
		return problem.Invalid("costs", "given", "none beside cost")
	case b.Costs != nil && b.Mode != nil && *b.Mode == "up_to":
		return problem.Invalid("mode", `"up_to"`, "all or reserve beside costs")
	case b.Costs != nil:
		return b.setCosts(req)
	}
	if b.Cost == nil && len(b.Descriptors) == 0 {
		return nil
	}
	if b.Cost == nil && req.Kind != acts.KindTake {
		return problem.Invalid("cost", "missing", fmt.Sprintf("%d … %d", least, weir.MaxCost))
	}
	if b.Cost != nil {
		req.Cost = *b.Cost
	}
	if req.Cost < least || req.Cost > weir.MaxCost {
		return problem.Invalid("cost", strconv.FormatInt(req.Cost, 10), fmt.Sprintf("%d … %d", least, weir.MaxCost))
	}
	return nil
}

// setCallCosts sets the costs of the limits in the call: their own or, without one, the body's.
func (b *actBody) setCallCosts(req *rules.Request) error {
	least := int64(0)
	if req.Kind == acts.KindRefund {
		least = 1
	}
	costs := !slices.Contains([]weir.Kind{acts.KindRelease, acts.KindRenew, acts.KindReset}, req.Kind)
	for i := range req.Calls {
		c, own := &req.Calls[i], b.Limits[i].Cost
		switch {
		case own != nil && !costs:
			return invalidLimit(i, "cost", strconv.FormatInt(*own, 10), "none: "+req.Kind.String()+" has none")
		case own != nil && b.Mode != nil && *b.Mode == "up_to":
			return invalidLimit(i, "cost", strconv.FormatInt(*own, 10), `none beside "mode":"up_to": all limits are charged alike`)
		case own != nil:
			c.Cost = *own
		case b.Cost != nil:
			c.Cost = *b.Cost
		case req.Kind == acts.KindTake:
			c.Cost = 1
		case costs:
			return invalidLimit(i, "cost", "missing", fmt.Sprintf("%d … %d", least, weir.MaxCost))
		}
		if c.Cost < least {
			return invalidLimit(i, "cost", strconv.FormatInt(c.Cost, 10), fmt.Sprintf("%d … %d", least, weir.MaxCost))
		}
	}
	return nil
}

// setCosts sets the costs by meter. Null is no number: a default would be free.
func (b *actBody) setCosts(req *rules.Request) error {
	req.Costs = make(map[string]int64, len(b.Costs))
	for meter, n := range b.Costs {
		if n == nil {
			return problem.Invalid("costs", strconv.Quote(meter)+": null", "a whole number")
		}
		req.Costs[meter] = *n
	}
	return nil
}

// setMode sets the mode of a take.
func (b *actBody) setMode(req *rules.Request) error {
	if req.Kind != acts.KindTake {
		return nil
	}
	mode := "all"
	if b.Mode != nil && *b.Mode != "" {
		mode = *b.Mode
	}
	switch mode {
	case "reserve":
		if b.MaxWaitMS == nil {
			return problem.Invalid("max_wait_ms", "missing", "how long a reserved charge may wait")
		}
		var err error
		req.MaxWait, err = parseMillis("max_wait_ms", b.MaxWaitMS, 1)
		return err
	case "up_to":
		if len(req.Descriptors) == 0 {
			req.Cost = req.Calls[0].Cost
		}
		if req.Cost > 0 {
			req.Cost, req.UpTo = 1, req.Cost
			for i := range req.Calls {
				req.Calls[i].Cost = 1
			}
		}
	case "all":
	default:
		return problem.Invalid("mode", strconv.Quote(mode), "all, up_to or reserve")
	}
	if b.MaxWaitMS != nil && *b.MaxWaitMS != 0 {
		return problem.Invalid("max_wait_ms", strconv.FormatInt(*b.MaxWaitMS, 10), `0, or "mode":"reserve" beside it`)
	}
	req.Immediate = true
	return nil
}

// parseMillis returns a number of milliseconds; nil is 0.
func parseMillis(field string, ms *int64, least int64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < least || *ms > weir.MaxWait.Milliseconds() {
		return 0, problem.Invalid(field, strconv.FormatInt(*ms, 10), fmt.Sprintf("%d … %d", least, weir.MaxWait.Milliseconds()))
	}
	return time.Duration(*ms) * time.Millisecond, nil
}
