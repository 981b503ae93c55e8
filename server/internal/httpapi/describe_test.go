package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/testing/openapitest"
)

// document is what every call of these tests is held against.
var document = sync.OnceValue(func() *openapitest.Document {
	d, err := openapitest.Parse(Description())
	if err != nil {
		panic(err)
	}
	return d
})

// elsewhere are operations that package server has tests for, and 401 and 500.
func elsewhere(answer string) bool {
	return strings.Contains(answer, " /json ") || strings.Contains(answer, " /healthcheck ") || strings.Contains(answer, " /metrics ") || strings.HasSuffix(answer, " 401") || strings.HasSuffix(answer, " 500") || strings.HasSuffix(answer, " 403") && !strings.Contains(answer, " /v1/auth ")
}

// described runs the tests, and fails if the document has an answer that no call
// got.
type described struct{ *testing.M }

func (d described) Run() int {
	code := d.M.Run()
	if code != 0 || flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.bench").Value.String() != "" || testing.Short() {
		return code
	}
	unseen := slices.DeleteFunc(document().Unseen(), elsewhere)
	if len(unseen) > 0 {
		fmt.Printf("openapi.yaml has answers that no test got:\n\t%s\n", strings.Join(unseen, "\n\t"))
		return 1
	}
	return code
}

// TestDescriptionCompiles: every schema is one, every reference leads somewhere.
func TestDescriptionCompiles(t *testing.T) {
	t.Parallel()
	if err := document().Compile(); err != nil {
		t.Error(err)
	}
}

// TestDescriptionServed: both forms are served, and say the same.
func TestDescriptionServed(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, path := range []string{DescriptionJSON, DescriptionYAML} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		wantStatus(t, w, http.StatusOK)
		if !bytes.Contains(w.Body.Bytes(), []byte("/v1/auth")) {
			t.Errorf("%s: %.200s", path, w.Body)
		}
	}
}

// TestDescriptionFields: the schemas have the fields of the bodies, no more and no
// fewer.
func TestDescriptionFields(t *testing.T) {
	t.Parallel()
	var root struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
				Required   []string       `json:"required"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(Description(), &root); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]any{
		"Take": actBody{}, "Answer": actAnswer{}, "Limit": limitAnswer{}, "Problem": problem.Document{}, "Readiness": readiness{}, "Check": checkOutcome{},
	} {
		all, always := fieldsOf(body)
		if name == "Take" {
			all = slices.DeleteFunc(all, func(field string) bool { return field == "record" }) // of a settlement
		}
		var described []string
		for field := range root.Components.Schemas[name].Properties {
			described = append(described, field)
		}
		slices.Sort(described)
		if diff := cmp.Diff(all, described); diff != "" {
			t.Errorf("%s (-Go +openapi.yaml):\n%s", name, diff)
		}
		if name == "Take" {
			continue // what a request must have is told by the answers to it
		}
		required := slices.Sorted(slices.Values(root.Components.Schemas[name].Required))
		if diff := cmp.Diff(always, required); diff != "" {
			t.Errorf("%s, always there (-Go +openapi.yaml):\n%s", name, diff)
		}
	}
}

// TestDescriptionParameters: what the query's parameters are called is not a key of
// an entry, and everything else is.
func TestDescriptionParameters(t *testing.T) {
	t.Parallel()
	var root struct {
		Components struct {
			Parameters map[string]any `json:"parameters"`
		} `json:"components"`
	}
	if err := json.Unmarshal(Description(), &root); err != nil {
		t.Fatal(err)
	}
	delete(root.Components.Parameters, "entries") // stands for everything else
	for _, name := range append(slices.Collect(maps.Keys(root.Components.Parameters)), "Domain", "costs", "entries", "hold_ms", "mode") {
		q := new(query)
		err := q.parameter(subRequest(""), name+"=a")
		isEntry := err == nil && len(q.entries) == 1
		if _, described := root.Components.Parameters[name]; described == isEntry {
			t.Errorf("%s: described as a parameter: %t, makes an entry: %t", name, described, isEntry)
		}
	}
}

// fieldsOf returns the names of a struct's fields in JSON, and of those that are
// always there, sorted.
func fieldsOf(v any) (all, always []string) {
	for field := range reflect.TypeOf(v).Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
		if options != "omitempty" {
			always = append(always, name)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	return all, always
}

// TestRoutes: what no route is for is told in the same form as everything else,
// and never with a status that a proxy takes for leave to pass.
func TestRoutes(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, operation := range document().Operations() {
		_, path, _ := strings.Cut(operation, " ")
		if elsewhere(" " + path + " ") {
			continue
		}
		for _, method := range []string{"OPTIONS", "POST", "GET", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "HEAD", strings.Repeat("X", 200)} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "http://weir"+path, nil))
			if slices.Contains(document().Operations(), method+" "+path) {
				continue
			}
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: got %d, want 405", method, path, w.Code)
				continue
			}
			if p := decode[problem.Document](t, w); p.Field != "method" || !strings.Contains(p.Detail, w.Header().Get("Allow")) {
				t.Errorf("%s %s: %+v", method, path, p)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/auth/", "/v2/auth", "/V1/auth", "/v1/take/x"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		wantStatus(t, w, http.StatusNotFound)
		if p := decode[problem.Document](t, w); p.Field != "path" {
			t.Errorf("%s: %+v", path, p)
		}
	}
}
