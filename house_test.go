package weir_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The sizes that the house keeps to, tests aside.
const (
	maxFileLines    = 400
	maxFuncLines    = 70
	maxUsualLines   = 45 // of 95 functions in 100
	maxParameters   = 5
	maxExported     = 40 // types, functions and variables of a package
	maxMethods      = 3  // of an interface
	usualPercentile = 95
)

var vague = []string{"base", "common", "helper", "helpers", "misc", "util", "utils"}

// source is the files of one package.
type source struct {
	dir   string
	fset  *token.FileSet
	files []*ast.File
}

// offences returns everything in the package that the house does not want.
func (s *source) offences() []string {
	return slices.Concat(s.names(), s.fileSizes(), s.funcSizes(), s.exports(), s.interfaces(), s.undocumented())
}

func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.Join(s.dir, filepath.Base(p.Filename)), p.Line)
}

func (s *source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func (s *source) names() []string {
	name := s.files[0].Name.Name
	if slices.Contains(vague, name) {
		return []string{fmt.Sprintf("%s: package %s: a name says what is inside", s.dir, name)}
	}
	return nil
}

func (s *source) fileSizes() []string {
	var found []string
	for _, f := range s.files {
		if n := s.fset.File(f.FileStart).LineCount(); n > maxFileLines {
			found = append(found, fmt.Sprintf("%s: %d lines, at most %d", s.at(f), n, maxFileLines))
		}
	}
	return found
}

func (s *source) funcSizes() []string {
	var found []string
	funcs := s.funcs()
	for _, f := range funcs {
		if n := s.lines(f); n > maxFuncLines {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, at most %d", s.at(f), f.Name.Name, n, maxFuncLines))
		}
		if n := f.Type.Params.NumFields(); n > maxParameters {
			found = append(found, fmt.Sprintf("%s: %s has %d parameters, at most %d, then a struct", s.at(f), f.Name.Name, n, maxParameters))
		}
	}
	if len(funcs) == 0 {
		return found
	}
	slices.SortFunc(funcs, func(a, b *ast.FuncDecl) int { return cmp.Compare(s.lines(a), s.lines(b)) })
	usual := funcs[(len(funcs)*usualPercentile+99)/100-1]
	if n := s.lines(usual); n > maxUsualLines {
		found = append(found, fmt.Sprintf("%s: 95 of 100 functions stay below %d lines; the next, %s, has %d",
			s.at(usual), maxUsualLines+1, usual.Name.Name, n))
	}
	return found
}

func (s *source) funcs() []*ast.FuncDecl {
	var funcs []*ast.FuncDecl
	for _, f := range s.files {
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				funcs = append(funcs, f)
			}
		}
	}
	return funcs
}

func (s *source) exports() []string {
	n := 0
	for _, f := range s.files {
		for _, e := range exported(f) {
			if e.kind != "const" && e.kind != "method" {
				n++
			}
		}
	}
	if n > maxExported {
		return []string{fmt.Sprintf("%s: %d exported types, functions and variables, at most %d", s.dir, n, maxExported)}
	}
	return nil
}

func (s *source) interfaces() []string {
	var found []string
	for _, f := range s.files {
		for n := range ast.Preorder(f) {
			if i, ok := n.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxMethods {
				found = append(found, fmt.Sprintf("%s: an interface of %d, at most %d methods", s.at(i), i.Methods.NumFields(), maxMethods))
			}
		}
	}
	return found
}

func (s *source) undocumented() []string {
	var found []string
	for _, f := range s.files {
		for _, e := range exported(f) {
			if !e.documented {
				found = append(found, fmt.Sprintf("%s: %s %s has no comment", s.at(e.name), e.kind, e.name.Name))
			}
		}
	}
	return found
}

// export is an exported name of a package.
type export struct {
	name       *ast.Ident
	kind       string
	documented bool
}

func exported(f *ast.File) []export {
	var all []export
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			kind := "func"
			if d.Recv != nil {
				kind = "method"
			}
			if receiver(d).IsExported() {
				all = append(all, export{d.Name, kind, d.Doc != nil})
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				all = append(all, declared(d, spec)...)
			}
		}
	}
	return slices.DeleteFunc(all, func(e export) bool { return !e.name.IsExported() })
}

// receiver is the name that decides, beside its own, whether a function can be
// seen: its receiver's type, or itself.
func receiver(f *ast.FuncDecl) *ast.Ident {
	if f.Recv == nil {
		return f.Name
	}
	name := f.Name
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == f.Name {
			name = id
		}
		return name == f.Name
	})
	return name
}

// declared returns the names of a type, var or const; a comment on the group
// stands for all its members.
func declared(d *ast.GenDecl, spec ast.Spec) []export {
	var all []export
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		all = append(all, export{spec.Name, "type", d.Doc != nil || spec.Doc != nil || spec.Comment != nil})
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			all = append(all, export{name, d.Tok.String(), d.Doc != nil || spec.Doc != nil || spec.Comment != nil})
		}
	}
	return all
}

// parse adds a file, generated ones aside.
func (s *source) parse(name string, src any) error {
	f, err := parser.ParseFile(s.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil && !ast.IsGenerated(f) {
		s.files = append(s.files, f)
	}
	return err
}

// sources parses every package of this module.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	all := map[string]*source{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := filepath.Dir(name)
		if all[dir] == nil {
			all[dir] = &source{dir: dir, fset: token.NewFileSet()}
		}
		return all[dir].parse(name, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// enter keeps out of hidden folders, test data and other modules.
func enter(dir string) error {
	base := filepath.Base(dir)
	if dir == "." {
		return nil
	}
	if strings.HasPrefix(base, ".") || base == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func TestHouse(t *testing.T) {
	t.Parallel()
	all := sources(t)
	if all["."] == nil || all[filepath.Join("internal", "algo")] == nil {
		t.Fatalf("the root or its steps were not found among %d packages", len(all))
	}
	for _, s := range all {
		if len(s.files) == 0 {
			continue
		}
		for _, offence := range s.offences() {
			t.Error(offence)
		}
	}
}

func TestHouseCatches(t *testing.T) {
	t.Parallel()
	function := func(name string, lines int) string {
		return fmt.Sprintf("func %s() {%s}\n", name, strings.Repeat("\n", lines-1))
	}
	for name, tc := range map[string]struct{ src, want string }{
		"clean":               {"package a\n\n// F is short.\nfunc F(a, b, c, d int) {}\n", ""},
		"vague name":          {"package util\n", "package util"},
		"file fits":           {"package a" + strings.Repeat("\n", maxFileLines), ""},
		"file too long":       {"package a" + strings.Repeat("\n", maxFileLines+1), "401 lines"},
		"function too long":   {"package a\n" + function("f", maxFuncLines+1), "f has 71 lines"},
		"functions too long":  {"package a\n" + function("f", maxUsualLines+1), "the next, f, has 46"},
		"one of 20 is longer": {"package a\n" + function("f", maxFuncLines) + strings.Repeat("func g() {}\n", 19), ""},
		"two of 20 are longer": {
			"package a\n" + strings.Repeat(function("f", maxFuncLines), 2) + strings.Repeat("func g() {}\n", 18),
			"the next, f, has 70",
		},
		"parameters":           {"package a\nfunc f(a, b, c int, d, e, g string) {}\n", "f has 6 parameters"},
		"method's parameters":  {"package a\ntype t int\nfunc (t) f(int, int, int, int, int, ...int) {}\n", "f has 6 parameters"},
		"exported names fit":   {"package a\n\n// All.\nvar (\n" + numbered("A%d = 0\n", maxExported) + ")\n", ""},
		"exported names":       {"package a\n\n// All.\nvar (\n" + numbered("A%d = 0\n", maxExported+1) + ")\n", "41 exported"},
		"constants do not":     {"package a\n\n// All.\nconst (\n" + numbered("A%d = 0\n", maxExported+1) + ")\n", ""},
		"interface fits":       {"package a\ntype i interface { a(); b() }\n", ""},
		"interface":            {"package a\ntype i interface { a(); b(); c(); d() }\n", "an interface of 4"},
		"interface inside":     {"package a\nfunc f(i interface { a(); b(); c(); d() }) {}\n", "an interface of 4"},
		"undocumented func":    {"package a\nfunc F() {}\n", "func F has no comment"},
		"undocumented type":    {"package a\ntype T int\n", "type T has no comment"},
		"undocumented var":     {"package a\nvar v, V int\n", "var V has no comment"},
		"undocumented const":   {"package a\nconst C = 1\n", "const C has no comment"},
		"undocumented method":  {"package a\n\n// T is.\ntype T[E any] struct{}\nfunc (*T[E]) M() {}\n", "method M has no comment"},
		"method nobody sees":   {"package a\ntype t int\nfunc (t) M() {}\n", ""},
		"comment on the line":  {"package a\nconst (\n\tC = 1 // of them\n)\n", ""},
		"generated code is so": {"// Code generated by a tool. DO NOT EDIT.\n\npackage a\nfunc F() {}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := inspect(t, tc.src)
			if tc.want == "" && len(got) > 0 || !strings.Contains(strings.Join(got, "\n"), tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// inspect returns the offences of a package of one file.
func inspect(t *testing.T, src string) []string {
	t.Helper()
	s := &source{dir: "a", fset: token.NewFileSet()}
	if err := s.parse("a.go", src); err != nil {
		t.Fatal(err)
	}
	if len(s.files) == 0 {
		return nil
	}
	return s.offences()
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
