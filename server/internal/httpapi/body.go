package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/rules"
)

// maxBody is the largest body read.
const maxBody = 256 << 10

// actBody is the body of POST /v1/take and of what undoes and ends takes.
// Pointers tell what is absent.
type actBody struct {
	Domain      string           `json:"domain"`
	Descriptors []descriptorBody `json:"descriptors"`
	Cost        *int64           `json:"cost"`
	Mode        *string          `json:"mode"`
	MaxWaitMS   *int64           `json:"max_wait_ms"`
	ID          string           `json:"id"`
	HoldMS      *int64           `json:"hold_ms"`
}

type descriptorBody struct {
	Entries []entryBody `json:"entries"`
}

type entryBody struct {
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// readAct reads the request of a POST that asks for a kind of act. The error is
// a [*problem] or a [*weir.InvalidError].
func (a *api) readAct(w http.ResponseWriter, r *http.Request, kind weir.Kind) (*rules.Request, error) {
	if err := checkContentType(r.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	body, err := a.Budget.ReadBody(w, r, maxBody)
	if err != nil {
		return nil, a.bodyProblem(w, err)
	}
	defer body.Close()
	if err := a.admit(&body); err != nil {
		return nil, a.bodyProblem(w, err)
	}
	return parseAct(body.Text, kind)
}

// admit checks what a body holds before it is decoded.
func (a *api) admit(body *admission.Body) error {
	outline := admission.OutlineOf(body.Text)
	switch {
	case outline.Deep:
		return invalid("body", "nested too deeply", "one JSON object")
	case outline.Descriptors > a.Bounds.MostDescriptors():
		return a.Bounds.CheckDescriptors(outline.Descriptors)
	case outline.Entries > rules.MaxEntries:
		return rules.TooManyEntries(outline.Largest, outline.Entries)
	}
	return body.Take(&outline)
}

// checkContentType accepts JSON, nothing, and the form that curl's -d claims to
// send whatever it sends.
func checkContentType(header string) error {
	if header == "" || header == "application/json" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(header)
	if err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") || mediaType == "application/x-www-form-urlencoded") {
		return nil
	}
	return &problem{
		Status: http.StatusUnsupportedMediaType,
		Detail: fmt.Sprintf("content-type is %q: want application/json", header),
		Field:  "content-type",
	}
}

func (a *api) bodyProblem(w http.ResponseWriter, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, weir.ErrInvalid):
		return err
	case errors.Is(err, admission.ErrFull):
		if a.Rejected != nil {
			a.Rejected(admission.Memory)
		}
		w.Header().Set("Retry-After", "1")
		return &problem{
			Status: http.StatusServiceUnavailable, Code: "request_memory",
			Detail: "too much memory is held by requests that are being received",
		}
	}
	if errors.As(err, &tooLarge) {
		return &problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit),
			Field:  "body",
		}
	}
	return invalid("body", "cut short", "a whole JSON object")
}

// parseAct reads a body. The error is a [*weir.InvalidError].
func parseAct(text []byte, kind weir.Kind) (*rules.Request, error) {
	// The decoder would replace what is not UTF-8, and two values would share
	// a budget.
	if !utf8.Valid(text) {
		return nil, invalid("body", "not UTF-8", "a JSON object")
	}
	var body actBody
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, decodeError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("body", "followed by more", "one JSON object")
	}
	return body.request(kind)
}

// decodeError names the field that a JSON error is about.
func decodeError(err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return invalid(wrongType.Field, wrongType.Value, wantedType(wrongType.Type))
	}
	// The decoder tells unknown fields by their message only.
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		if field, unquoteErr := strconv.Unquote(name); unquoteErr == nil {
			return invalid(field, "unknown", "domain, descriptors, entries, key, value, cost, mode, max_wait_ms, id or hold_ms")
		}
	}
	return invalid("body", "not understood ("+err.Error()+")", "one JSON object")
}

func wantedType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int64:
		return "a whole number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

func (b *actBody) request(kind weir.Kind) (*rules.Request, error) {
	if b.Domain == "" {
		return nil, invalid("domain", "missing", "the domain of the rules")
	}
	if len(b.Descriptors) == 0 {
		return nil, invalid("descriptors", "missing", "at least one descriptor")
	}
	req := &rules.Request{Kind: kind, Domain: b.Domain, ID: b.ID, Descriptors: make([][]rules.Entry, len(b.Descriptors))}
	for i := range b.Descriptors {
		entries, err := b.Descriptors[i].entries(i)
		if err != nil {
			return nil, err
		}
		req.Descriptors[i] = entries
	}
	return req, b.setTerms(req)
}

func (d *descriptorBody) entries(i int) ([]rules.Entry, error) {
	if len(d.Entries) == 0 {
		return nil, invalid(fmt.Sprintf("descriptors[%d].entries", i), "missing", "at least one entry")
	}
	entries := make([]rules.Entry, len(d.Entries))
	for j, e := range d.Entries {
		// An absent value would give everybody who lacks one the same budget.
		if e.Key == nil {
			return nil, invalid(fmt.Sprintf("descriptors[%d].entries[%d].key", i, j), "missing", "a string")
		}
		if e.Value == nil {
			return nil, invalid(fmt.Sprintf("descriptors[%d].entries[%d].value", i, j), "missing", "a string")
		}
		entries[j] = rules.Entry{Key: *e.Key, Value: *e.Value}
	}
	return entries, nil
}
