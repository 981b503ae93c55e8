package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/rules"
)

// maxBody is the largest body read.
const maxBody = 64 << 10

// A request names a key, and says what is to become of it.
type request struct {
	domain  string
	entries []rules.Entry
	name    string // of one limit; empty for all
	cost    int64
	until   time.Time
	timed   bool        // it says until when
	limit   *weir.Limit // of an override
	text    string      // the limit as it was written
}

// changeBody is the body of a change. Pointers tell what is absent.
type changeBody struct {
	Domain  string      `json:"domain"`
	Entries []entryBody `json:"entries"`
	Name    string      `json:"name"`
	For     *string     `json:"for"`
	Until   *string     `json:"until"`
	Limit   *string     `json:"limit"`
}

type entryBody struct {
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// readChange reads the request of a POST. The error is a [*problem.Document] or a
// [*weir.InvalidError].
func readChange(w http.ResponseWriter, r *http.Request, now time.Time) (*request, error) {
	// What a form of a web page can send is none of these.
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return nil, &problem.Document{
			Status: http.StatusUnsupportedMediaType, Field: "content-type",
			Detail: fmt.Sprintf("content-type is %q: want application/json", r.Header.Get("Content-Type")),
		}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, &problem.Document{
			Status: http.StatusRequestEntityTooLarge, Field: "body",
			Detail: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit),
		}
	}
	if err != nil {
		return nil, invalid("body", "cut short", "a whole JSON object")
	}
	return parseChange(text, now)
}

// parseChange reads a body. The error is a [*weir.InvalidError].
func parseChange(text []byte, now time.Time) (*request, error) {
	// The decoder would replace what is not UTF-8, and another key be meant.
	if !utf8.Valid(text) {
		return nil, invalid("body", "not UTF-8", "a JSON object")
	}
	var body changeBody
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, decodeError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("body", "followed by more", "one JSON object")
	}
	req := &request{domain: body.Domain, name: body.Name, cost: 1}
	for i, e := range body.Entries {
		if e.Key == nil || e.Value == nil {
			return nil, invalid(fmt.Sprintf("entries[%d]", i), "incomplete", "a key and a value")
		}
		req.entries = append(req.entries, rules.Entry{Key: *e.Key, Value: *e.Value})
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	return req, body.terms(req, now)
}

// decodeError names the field that a JSON error is about.
func decodeError(err error) error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
		want := "a string"
		if wrong.Type.Kind() == reflect.Slice {
			want = "an array"
		}
		return invalid(wrong.Field, wrong.Value, want)
	}
	// The decoder tells unknown fields by their message only.
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		if field, unquoteErr := strconv.Unquote(name); unquoteErr == nil {
			return invalid(field, "unknown", "domain, entries, key, value, name, for, until or limit")
		}
	}
	return invalid("body", "not understood ("+err.Error()+")", "one JSON object")
}

func (r *request) check() error {
	switch {
	case r.domain == "":
		return invalid("domain", "missing", "the domain of the rules")
	case len(r.entries) == 0:
		return invalid("entries", "missing", "at least one entry, with a key and a value")
	}
	return nil
}

// terms reads until when, and what, is to hold.
func (b *changeBody) terms(req *request, now time.Time) error {
	if b.For != nil && b.Until != nil {
		return invalid("until", "given", `none beside "for"`)
	}
	lasts := DefaultFor
	switch {
	case b.For != nil:
		d, err := time.ParseDuration(*b.For)
		if err != nil || d < time.Millisecond || d > MaxFor {
			return invalid("for", strconv.Quote(*b.For), "a duration of 1ms … 720h (30 days), such as 1h30m")
		}
		lasts = d
	case b.Until != nil:
		at, err := time.Parse(time.RFC3339, *b.Until)
		if err != nil || !now.Before(at) || at.Sub(now) > MaxFor {
			return invalid("until", strconv.Quote(*b.Until), "an instant of the next 30 days, such as "+now.Add(DefaultFor).UTC().Format(time.RFC3339))
		}
		lasts = at.Sub(now)
	}
	req.until, req.timed = now.Add(lasts), b.For != nil || b.Until != nil
	if b.Limit == nil {
		return nil
	}
	limit, err := weir.ParseLimit(*b.Limit)
	if err != nil {
		return err
	}
	req.limit, req.text = &limit, *b.Limit
	return nil
}

// parseQuery reads the query of GET /v1/key. The error is a [*weir.InvalidError].
func parseQuery(raw string) (*request, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("query", "not understood", "percent-encoded text")
	}
	req := &request{domain: query.Get("domain"), name: query.Get("name"), cost: 1}
	for parameter, values := range query {
		switch parameter {
		case "domain", "name", "cost":
			if len(values) > 1 {
				return nil, invalid(parameter, "repeated", "one "+parameter)
			}
		case "entry":
		default:
			return nil, invalid(parameter, "unknown", "domain, entry, name or cost")
		}
	}
	for _, entry := range query["entry"] {
		key, value, found := strings.Cut(entry, "=")
		if !found {
			return nil, invalid("entry", strconv.Quote(entry), "KEY=VALUE")
		}
		req.entries = append(req.entries, rules.Entry{Key: key, Value: value})
	}
	if cost := query.Get("cost"); cost != "" {
		req.cost, err = strconv.ParseInt(cost, 10, 64)
		if err != nil || req.cost < 1 || req.cost > weir.MaxCost {
			return nil, invalid("cost", strconv.Quote(cost), fmt.Sprintf("1 … %d", weir.MaxCost))
		}
	}
	return req, req.check()
}

// shownBytes bounds what a problem repeats of the request.
const shownBytes = 80

func invalid(field, value, want string) *weir.InvalidError {
	return &weir.InvalidError{Field: short(field), Value: short(value), Want: want}
}

func short(text string) string {
	if len(text) > shownBytes {
		return strings.ToValidUTF8(text[:shownBytes], "") + "…"
	}
	return text
}
