// Package problem writes problem documents, as RFC 9457 defines them, and finds the
// document that describes an error.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// QuotaExceeded is the type of a problem that says that a limit refused.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A Document is a problem document. It is an error, so that functions which read
// requests can return one.
type Document struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Code     string   `json:"code,omitempty"`
	Field    string   `json:"field,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Error returns the detail.
func (p *Document) Error() string { return p.Detail }

// idErrors are the documents of what can be wrong with an id.
var idErrors = map[weir.IDError]Document{
	weir.ErrUnknownID:  {Status: http.StatusNotFound, Code: "unknown_id", Field: "id"},
	weir.ErrIDReused:   {Status: http.StatusConflict, Code: "id_reused", Field: "id"},
	weir.ErrSettled:    {Status: http.StatusConflict, Code: "settled", Field: "id"},
	weir.ErrReleased:   {Status: http.StatusConflict, Code: "released", Field: "id"},
	weir.ErrOverRefund: {Status: http.StatusUnprocessableEntity, Code: "over_refund", Field: "cost"},
	weir.ErrBusyID:     {Status: http.StatusConflict, Code: "busy", Field: "id"},
}

// Of returns a new document for an error that the request caused: a Document itself, an
// error with a method Problem, an [*http.MaxBytesError], or an error of the class
// [weir.ErrInvalid]. It returns nil for other errors, such as those of the store.
func Of(err error) *Document {
	var document *Document
	var described interface{ Problem() *Document }
	var tooLarge *http.MaxBytesError
	var id weir.IDError
	var mistake *weir.InvalidError
	switch {
	case errors.As(err, &document):
		return document
	case errors.As(err, &described):
		return described.Problem()
	case errors.As(err, &tooLarge):
		return &Document{
			Status: http.StatusRequestEntityTooLarge, Field: "body",
			Detail: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit),
		}
	case errors.As(err, &id) && idErrors[id].Status != 0:
		p := idErrors[id]
		p.Detail = id.Error()
		return &p
	case errors.As(err, &mistake):
		return &Document{
			Status: http.StatusBadRequest, Field: mistake.Path(), Detail: Detail(mistake),
		}
	case errors.Is(err, weir.ErrInvalid):
		return &Document{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return nil
}

// Detail returns the text of the error for a client, who need not know the package's name.
func Detail(mistake *weir.InvalidError) string { return strings.TrimPrefix(mistake.Error(), "weir: ") }

// Write sends the document: as JSON, or as plain text if the client does not accept
// JSON. A document without a type gets its status as title.
func (p *Document) Write(w http.ResponseWriter, r *http.Request) {
	if p.Type == "" {
		p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	}
	contentType, body := plainText, []byte(nil)
	if acceptsJSON(r.Header["Accept"]) {
		contentType = problemJSON
		body, _ = json.Marshal(p) // strings and numbers always marshal
	} else {
		body = []byte(p.Title + ": " + p.Detail)
	}
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// The values of Content-Type.
var (
	plainText   = []string{"text/plain; charset=utf-8"}
	problemJSON = []string{"application/problem+json"}
)

// acceptsJSON reports whether a client that sent these Accept headers reads problem
// documents. A client that sent none reads anything.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			continue
		}
		switch mediaType {
		case "application/problem+json", "application/json", "application/*", "*/*":
			return true
		}
	}
	return false
}

// maxShown bounds the bytes that a problem repeats of a request.
const maxShown = 80

// Shorten cuts a part of a request to a length that a problem may repeat.
func Shorten(text string) string {
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}

// Invalid returns the error of a field of a request. It shortens the field, which the
// request may have named itself, and the value.
func Invalid(field, value, want string) *weir.InvalidError {
	if field == "" {
		field = `""`
	}
	return &weir.InvalidError{Field: Shorten(field), Value: Shorten(value), Want: want}
}
