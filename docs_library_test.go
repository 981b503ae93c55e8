package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestLibraryGuide demands that the code in the library's guide is that of the
// examples, which run.
func TestLibraryGuide(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("example_verbs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Example") {
			continue
		}
		found++
		body := string(src[fset.Position(f.Body.Lbrace).Offset+2 : fset.Position(f.Body.Rbrace).Offset])
		code := strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]
		section(t, "docs/library.md", f.Name.Name, "```go\n"+code+"```\n")
	}
	if found < 6 {
		t.Errorf("found %d examples", found)
	}
}
