// Package openapitest holds HTTP calls against an OpenAPI document: a test sends
// its requests through [Document.Handler] or [Document.Transport] and fails where
// an answer, or a request that was understood, is not what the document says.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const location = "openapi.json"

// Document is an OpenAPI document and what calls have shown of it. It is safe for
// concurrent use.
type Document struct {
	root     map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema // by their pointers
	seen    map[string]bool
}

// Parse reads a document in JSON.
func Parse(text []byte) (*Document, error) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	object, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("openapitest: the document is no object")
	}
	d := &Document{root: object, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	return d, d.compiler.AddResource(location, root)
}

// Operations lists what the document says can be called, as "GET /path", sorted.
func (d *Document) Operations() []string {
	var all []string
	for path, item := range object(d.root["paths"]) {
		for method := range object(item) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Unseen lists the answers that the document has and no call got, as "GET /path
// 200", sorted.
func (d *Document) Unseen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, operation := range d.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		at := []string{"paths", path, strings.ToLower(method), "responses"}
		responses, _ := d.find(at)
		for status := range responses {
			if name := operation + " " + status; !d.seen[name] {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Handler passes calls on and reports each whose answer is not in the document.
func (d *Document) Handler(t testing.TB, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if r.Body != nil {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, &body), r.Body}
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		got := recorder.Result()
		for _, wrong := range d.Check(r, body.Bytes(), got, recorder.Body.Bytes()) {
			t.Errorf("%s %s: %d: %s", r.Method, r.URL, got.StatusCode, wrong)
		}
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
	})
}

// Check returns what is wrong with an answer to a request: nothing if it is what
// the document says. Paths that the document does not have are to be 404, or 401
// to who may not know.
func (d *Document) Check(r *http.Request, sent []byte, got *http.Response, body []byte) []string {
	item := object(object(d.root["paths"])[r.URL.Path])
	if item == nil {
		if !slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized, http.StatusMovedPermanently}, got.StatusCode) {
			return []string{"the document has no such path"}
		}
		return nil
	}
	method := strings.ToLower(r.Method)
	if got.StatusCode == http.StatusMethodNotAllowed {
		return d.checkMethod(r, item, got)
	}
	if item[method] == nil {
		return []string{"the document has no such method"}
	}
	at := []string{"paths", r.URL.Path, method}
	status := strconv.Itoa(got.StatusCode)
	response, at2 := d.find(append(slices.Clone(at), "responses", status))
	if response == nil {
		return []string{"the document has no such status"}
	}
	d.note(r.Method + " " + r.URL.Path + " " + status)
	wrong := d.checkHeaders(response, at2, got.Header)
	if method != "head" {
		wrong = append(wrong, d.checkBody(response, at2, got.Header.Get("Content-Type"), body)...)
	}
	if got.StatusCode < 300 && len(sent) > 0 {
		wrong = append(wrong, d.validate(append(at, "requestBody", "content", "application/json", "schema"), sent)...)
	}
	return wrong
}

func (d *Document) note(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[name] = true
}

// checkMethod demands that Allow names the methods of the document.
func (d *Document) checkMethod(r *http.Request, item map[string]any, got *http.Response) []string {
	var wrong []string
	if item[strings.ToLower(r.Method)] != nil {
		wrong = append(wrong, "the document has this method")
	}
	for method := range item {
		switch {
		case method == "parameters":
		case !slices.Contains(strings.Split(got.Header.Get("Allow"), ", "), strings.ToUpper(method)):
			wrong = append(wrong, "Allow lacks "+method)
		default:
			d.note(strings.ToUpper(method) + " " + r.URL.Path + " 405")
		}
	}
	return wrong
}

// ours are the headers that an answer is not to have unless the document says so.
var ours = []string{
	"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	"Retry-After", "Weir-Id", "Cache-Control", "Allow", "WWW-Authenticate",
}

func (d *Document) checkHeaders(response map[string]any, at []string, h http.Header) []string {
	var wrong []string
	headers := object(response["headers"])
	for _, name := range ours {
		for _, value := range h.Values(name) {
			if headers[name] == nil {
				wrong = append(wrong, "the document has no header "+name)
				continue
			}
			_, header := d.find(append(slices.Clone(at), "headers", name))
			text, _ := json.Marshal(value) // a string always marshals
			wrong = append(wrong, d.validate(append(header, "schema"), text)...)
		}
	}
	return wrong
}

func (d *Document) checkBody(response map[string]any, at []string, contentType string, body []byte) []string {
	content := object(response["content"])
	if len(body) == 0 && content == nil {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || content[mediaType] == nil {
		return []string{fmt.Sprintf("the document has no body of type %q here", contentType)}
	}
	if !strings.HasSuffix(mediaType, "json") {
		return nil
	}
	return d.validate(append(slices.Clone(at), "content", mediaType, "schema"), body)
}

// validate holds JSON against the schema at a place of the document.
func (d *Document) validate(at []string, text []byte) []string {
	schema, err := d.schema(at)
	if err != nil {
		return []string{err.Error()}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", text, err)}
	}
	return nil
}

// Compile compiles every schema of the document's components and bodies; the error
// names the first that cannot be.
func (d *Document) Compile() error {
	return d.walk(nil, d.root)
}

func (d *Document) walk(at []string, node any) error {
	switch node := node.(type) {
	case map[string]any:
		for key, child := range node {
			here := append(slices.Clone(at), key)
			if key == "schema" || len(at) == 2 && at[1] == "schemas" {
				if _, err := d.schema(here); err != nil {
					return err
				}
				continue
			}
			if ref, ok := child.(string); ok && key == "$ref" && d.follow(ref) == nil {
				return fmt.Errorf("openapitest: %s: %s is nowhere", pointer(at), ref)
			}
			if err := d.walk(here, child); err != nil {
				return err
			}
		}
	case []any:
		for i, child := range node {
			if err := d.walk(append(slices.Clone(at), strconv.Itoa(i)), child); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Document) schema(at []string) (*jsonschema.Schema, error) {
	name := pointer(at)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[name]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(location + "#" + name)
	if err != nil {
		return nil, fmt.Errorf("openapitest: %s: %w", name, err)
	}
	d.schemas[name] = s
	return s, nil
}

// find returns the object at a place, and where it really is if references lead
// elsewhere.
func (d *Document) find(at []string) (map[string]any, []string) {
	node, real := d.root, []string(nil)
	for _, key := range at {
		node, real = object(node[key]), append(real, key)
		if ref, ok := node["$ref"].(string); ok {
			real = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
			node = d.follow(ref)
		}
	}
	return node, real
}

func (d *Document) follow(ref string) map[string]any {
	node := d.root
	for key := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		node = object(node[key])
	}
	return node
}

func object(node any) map[string]any {
	o, _ := node.(map[string]any)
	return o
}

func pointer(at []string) string {
	var b strings.Builder
	for _, key := range at {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
	}
	return b.String()
}
