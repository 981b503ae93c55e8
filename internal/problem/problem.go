// Package problem writes problem documents, as RFC 9457 has them.
package problem

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// QuotaExceeded is the type of a problem that says a limit refused.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A Document is a problem document.
type Document struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Code     string   `json:"code,omitempty"`
	Field    string   `json:"field,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Error makes a problem usable as the error of a reader of requests.
func (p *Document) Error() string { return p.Detail }

// Write sends the problem, as plain text to a client that reads no JSON. One
// without a type gets its status for a title. What cannot be sent any more is
// lost: the client is gone.
func (p *Document) Write(w http.ResponseWriter, r *http.Request) {
	if p.Type == "" {
		p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	}
	contentType, body := "text/plain; charset=utf-8", []byte(p.Title+": "+p.Detail)
	if accepted(r.Header.Values("Accept")) {
		// Strings and a number always marshal.
		text, _ := json.Marshal(p)
		contentType, body = "application/problem+json", text
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// accepted reports whether a client that sent these Accept headers reads problem
// documents. One that sent none reads anything.
func accepted(accept []string) bool {
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
