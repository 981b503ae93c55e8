package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/pages"
)

// TestLibraryGuide demands that the code in the library's guide is that of the
// examples, which run.
func TestLibraryGuide(t *testing.T) {
	t.Parallel()
	const guide = "docs/library.md"
	examples := examplesOf(t, "example_test.go")
	maps.Copy(examples, examplesOf(t, "example_verbs_test.go"))
	maps.Copy(examples, examplesOf(t, "memstore/example_test.go"))
	maps.Copy(examples, examplesOf(t, "redisstore/example_test.go"))
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`(?m)^<!-- (Example\w+) -->$`).FindAllStringSubmatch(string(text), -1)
	for _, mark := range marks {
		if examples[mark[1]] == "" {
			t.Errorf("there is no %s", mark[1])
			continue
		}
		pages.Section(t, guide, mark[1], examples[mark[1]])
	}
	if len(marks) < 6 {
		t.Errorf("found %d examples", len(marks))
	}
}

// TestMiddlewareGuide demands that all code in the guide to the middleware is
// that of examples, which run.
func TestMiddlewareGuide(t *testing.T) {
	t.Parallel()
	const guide = "docs/middleware.md"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`(?m)^<!-- (\w+)\.(\w+) -->$`).FindAllStringSubmatch(string(text), -1)
	if blocks := strings.Count(string(text), "```go\n"); blocks != len(marks) || blocks < 6 {
		t.Errorf("%d pieces of code, %d of examples", blocks, len(marks))
	}
	for _, mark := range marks {
		code, found := examplesOf(t, mark[1]+"/example_test.go")[mark[2]]
		if !found {
			t.Errorf("%s has no %s", mark[1], mark[2])
			continue
		}
		pages.Section(t, guide, mark[1]+"."+mark[2], code)
	}
}

// examplesOf returns the code of a file's examples, as it stands in the docs.
func examplesOf(t *testing.T, path string) map[string]string {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Example") {
			continue
		}
		body := string(src[fset.Position(f.Body.Lbrace).Offset+2 : fset.Position(f.Body.Rbrace).Offset])
		code := strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]
		examples[f.Name.Name] = "```go\n" + code + "```\n"
	}
	return examples
}
