// Package jsonbody decodes the JSON bodies of requests strictly, and writes the JSON
// bodies of answers.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
)

// Decode decodes one JSON object. It accepts nothing but UTF-8, known fields, each by its exact
// name and once, and the right types: a request that is misread would be charged to somebody
// else's budget.
// The error is a [*weir.InvalidError] that names the field; fields lists the known ones.
func Decode(text []byte, into any, fields string) error {
	// The decoder would replace what is not UTF-8, and make one key of two.
	if !utf8.Valid(text) {
		return problem.Invalid("body", "not UTF-8", "a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(into); err != nil {
		return decodeError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return problem.Invalid("body", "followed by more", "one JSON object")
	}
	if wrong := checkNames(text, reflect.TypeOf(into)); wrong != nil {
		if wrong.problem == repeated {
			fields = "each field once"
		}
		return problem.Invalid(wrong.path, wrong.problem, fields)
	}
	return nil
}

// decodeError names the field that an error of the decoder is about.
func decodeError(err error) error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
		return problem.Invalid(wrong.Field, wrong.Value, describe(wrong.Type))
	}
	return problem.Invalid("body", "malformed ("+err.Error()+")", "one JSON object")
}

func describe(t reflect.Type) string {
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

// Unsupported returns the problem of a request whose body is compressed, or declared in a charset
// other than UTF-8 or as a media type that is not accepted, which is empty for none; nil for
// others.
func Unsupported(h http.Header, accepted func(mediaType string) bool) *problem.Document {
	if coding := strings.Join(h.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return unsupported("content-encoding", coding, "none")
	}
	contentType := h.Get("Content-Type")
	mediaType, params, err := "", map[string]string(nil), error(nil)
	if contentType == "application/json" { // nearly always
		mediaType = contentType
	} else if contentType != "" {
		mediaType, params, err = mime.ParseMediaType(contentType)
	}
	if charset := params["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") || !accepted(mediaType) {
		return unsupported("content-type", contentType, "application/json")
	}
	return nil
}

func unsupported(header, value, want string) *problem.Document {
	return &problem.Document{
		Status: http.StatusUnsupportedMediaType, Field: header,
		Detail: fmt.Sprintf("%s is %q: want %s", header, problem.Shorten(value), want),
	}
}

// CutShort is the error of a body whose connection ended first.
func CutShort() error { return problem.Invalid("body", "cut short", "a whole JSON object") }

// Millis returns d in milliseconds, rounded up, or -1 for [weir.Never], as answers have it.
func Millis(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Micros returns an instant in microseconds since 1970, as answers have it, or 0 for the
// zero time.
func Micros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// Write sends v as JSON on one line.
func Write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	write(w, status, body, err)
}

// WriteIndented sends v as JSON for people, with status 200.
func WriteIndented(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	write(w, http.StatusOK, body, err)
}

func write(w http.ResponseWriter, status int, body []byte, err error) {
	if err != nil {
		panic(fmt.Sprintf("jsonbody: write: %v", err))
	}
	Send(w, status, append(body, '\n'))
}

// contentType is the value of Content-Type in every answer.
var contentType = []string{"application/json"}

// Send sends a body that is JSON already.
func Send(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
