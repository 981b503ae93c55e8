package weir_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The bounds of what is exported.
const maxNames, maxFields = 245, 175

// published are the folders of the packages that programs import.
var published = []string{".", "clientip", "memstore", "redisstore", "redisstore/queue", "trace", "weirgrpc", "weirhttp", "weirmetrics", "weirprom"}

// TestAPIStaysSmall demands a comment for each exported name of each package, and counts
// those of the public packages (functions, types, methods, constants and variables) and the
// fields of their structs. Lower the bounds with each step that makes room; raise one only
// in a commit that says why.
func TestAPIStaysSmall(t *testing.T) {
	t.Parallel()
	names, fields := 0, 0
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, e := range exported(t, path, nil) {
			if !e.documented {
				t.Errorf("%s has no comment", e)
			}
			switch {
			case !slices.Contains(published, filepath.Dir(path)):
			case e.field:
				fields++
			default:
				names++
			}
		}
	}
	if names > maxNames || fields > maxFields {
		t.Errorf("%d names and %d fields are exported, want at most %d and %d", names, fields, maxNames, maxFields)
	}
	if names < maxNames/2 || fields < maxFields/2 {
		t.Errorf("%d names and %d fields are counted: want the whole", names, fields)
	}
}

// TestNoInternalTypes demands that signatures and exported fields of the library, as go doc shows
// them, name no internal type: programs could not write it.
func TestNoInternalTypes(t *testing.T) {
	t.Parallel()
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || !slices.Contains(published, filepath.Dir(path)) {
			continue
		}
		for _, found := range internalTypes(t, path, nil) {
			t.Error(found)
		}
	}
	const src = `package a
import "github.com/weirlimit/weir/internal/algo"
type T struct { A algo.Rule; b algo.Rule }
func (T) M(x int) *algo.Rule { var r algo.Rule; return &r }
func f(algo.Rule) {}
const C = algo.Never
`
	if found := internalTypes(t, "a.go", src); len(found) != 2 {
		t.Errorf("%q: want the field A and the method M", found)
	}
}

// internalTypes returns the internal types in a file's exported fields and signatures.
func internalTypes(t *testing.T, path string, src any) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	inside := map[string]bool{}
	for _, i := range file.Imports {
		if name := strings.Trim(i.Path.Value, `"`); strings.Contains(name, "weir/internal/") {
			inside[name[strings.LastIndexByte(name, '/')+1:]] = true
		}
	}
	ast.FileExports(file)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			d.Body = nil
			// Methods of types that are not exported are not shown.
			if d.Recv != nil && !ast.IsExported(strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "*")) {
				continue
			}
		case *ast.GenDecl:
			if d.Tok != token.TYPE {
				continue
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && inside[of.Name] {
					found = append(found, fmt.Sprintf("%s: %s.%s is internal", fset.Position(s.Pos()), of.Name, s.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}

// An export is an exported name, or an exported field of an exported struct.
type export struct {
	at         token.Position
	name       string
	field      bool // which needs no comment
	documented bool
}

func (e export) String() string { return fmt.Sprintf("%s:%d: %s", e.at.Filename, e.at.Line, e.name) }

// exported returns what a file exports; nothing for generated files.
func exported(t *testing.T, path string, src any) (all []export) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	// A comment on a group stands for all its members.
	add := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		documented := slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil })
		all = append(all, export{at: fset.Position(name.Pos()), name: name.Name, documented: documented})
	}
	ast.FileExports(file)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "*")) {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name, d.Doc, spec.Doc, spec.Comment)
					if of, ok := spec.Type.(*ast.StructType); ok {
						all = append(all, slices.Repeat([]export{{field: true, documented: true}}, of.Fields.NumFields())...)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						add(name, d.Doc, spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
	return all
}

// TestExportedCatches: the test above must see names without a comment, and only those.
func TestExportedCatches(t *testing.T) {
	t.Parallel()
	const src = `package a
func F() {}
type T int
var v, V int
const C = 1
type u int
func (u) M() {}
func (*T[E]) N() {}
const (
	D = 1 // on its line
)
// Of all.
var (
	W = 1
	X struct{ Y int }
)
// G is short.
func G() {}
`
	var got []string
	for _, e := range exported(t, "a.go", src) {
		if !e.documented {
			got = append(got, e.String())
		}
	}
	if want := []string{"a.go:2: F", "a.go:3: T", "a.go:4: V", "a.go:5: C", "a.go:8: N"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if all := exported(t, "a.go", "// Code generated by a tool. DO NOT EDIT.\n\n"+src); all != nil {
		t.Errorf("generated code: %v", all)
	}
}

// goFiles are the paths of all Go files.
func goFiles(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
