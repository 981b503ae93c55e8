package openapitest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const small = `{"openapi": "3.1.1", "paths": {"/a": {
	"get": {"responses": {
		"200": {"$ref": "#/components/responses/Fine"},
		"405": {"description": ""},
		"503": {"description": ""}}},
	"post": {
		"requestBody": {"content": {"application/json": {"schema": {"type": "object", "required": ["x"]}}}},
		"responses": {"200": {"$ref": "#/components/responses/Fine"}, "405": {"description": ""}}}}},
	"components": {
		"headers": {"R": {"schema": {"type": "string", "pattern": "^[0-9]+$"}}},
		"responses": {"Fine": {"headers": {"Retry-After": {"$ref": "#/components/headers/R"}},
			"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S"}}}}},
		"schemas": {"S": {"type": "object", "additionalProperties": false, "properties": {"ok": {"type": "boolean"}}}}}}`

func document(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCheck: what differs from the document is found, and nothing else.
func TestCheck(t *testing.T) {
	t.Parallel()
	fine := http.Header{"Content-Type": {"application/json"}}
	for name, c := range map[string]struct {
		method, path, sent string
		status             int
		header             http.Header
		body, wrong        string
	}{
		"as described":       {"GET", "/a", "", 200, fine, `{"ok":true}`, ""},
		"with its header":    {"GET", "/a", "", 200, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}}, `{}`, ""},
		"header's value":     {"GET", "/a", "", 200, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"soon"}}, `{}`, "pattern"},
		"another header":     {"GET", "/a", "", 200, http.Header{"Content-Type": {"application/json"}, "Weir-Id": {"1"}}, `{}`, "no header Weir-Id"},
		"another status":     {"GET", "/a", "", 201, fine, `{}`, "no such status"},
		"another field":      {"GET", "/a", "", 200, fine, `{"no":true}`, "additional properties"},
		"another type":       {"GET", "/a", "", 200, fine, `{"ok":1}`, "want boolean"},
		"no JSON":            {"GET", "/a", "", 200, fine, `{`, "{"},
		"another media type": {"GET", "/a", "", 200, http.Header{"Content-Type": {"text/html"}}, `{}`, "text/html"},
		"a body of its own":  {"GET", "/a", "", 503, fine, `{}`, "no body"},
		"another method":     {"PUT", "/a", "", 200, fine, `{}`, "no such method"},
		"a method refused":   {"PUT", "/a", "", 405, http.Header{"Allow": {"GET, POST"}}, ``, ""},
		"a method forgotten": {"PUT", "/a", "", 405, http.Header{"Allow": {"GET"}}, ``, "Allow lacks post"},
		"a method it has":    {"GET", "/a", "", 405, http.Header{"Allow": {"GET, POST"}}, ``, "has this method"},
		"a request":          {"POST", "/a", `{"x":1}`, 200, fine, `{}`, ""},
		"a wrong request":    {"POST", "/a", `{"y":1}`, 200, fine, `{}`, "missing property"},
		"another path":       {"GET", "/b", "", 200, fine, `{}`, "no such path"},
		"no path":            {"GET", "/b", "", 404, fine, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(document(t, small).Check(httptest.NewRequest(c.method, c.path, nil), []byte(c.sent),
				&http.Response{StatusCode: c.status, Header: c.header}, []byte(c.body)), "; ")
			if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
		})
	}
}

func TestUnseen(t *testing.T) {
	t.Parallel()
	d := document(t, small)
	d.Check(httptest.NewRequest("GET", "/a", nil), nil, &http.Response{StatusCode: 503}, nil)
	d.Check(httptest.NewRequest("PUT", "/a", nil), nil, &http.Response{StatusCode: 405, Header: http.Header{"Allow": {"GET, POST"}}}, nil)
	if diff := cmp.Diff([]string{"GET /a 200", "POST /a 200"}, d.Unseen()); diff != "" {
		t.Errorf("unseen (-want +got):\n%s", diff)
	}
	if got := d.Operations(); !slices.Equal(got, []string{"GET /a", "POST /a"}) {
		t.Errorf("operations: %v", got)
	}
}

func TestCompile(t *testing.T) {
	t.Parallel()
	if err := document(t, small).Compile(); err != nil {
		t.Error(err)
	}
	for old, wrong := range map[string]string{
		`"type": "boolean"`:                `"type": "bool"`,
		`"#/components/schemas/S"`:         `"#/components/schemas/T"`,
		`"#/components/responses/Fine"},`:  `"#/components/responses/Gone"},`,
		`{"type": "object", "required": [`: `{"type": 7, "required": [`,
	} {
		if document(t, strings.Replace(small, old, wrong, 1)).Compile() == nil {
			t.Errorf("%s compiles", wrong)
		}
	}
}
