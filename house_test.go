package weir_test

import (
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

var vague = []string{"base", "common", "helper", "helpers", "misc", "util", "utils"}

// source is the files of one package.
type source struct {
	dir   string
	fset  *token.FileSet
	files []*ast.File
}

// offences returns everything in the package that the house does not want.
func (s *source) offences() []string {
	return slices.Concat(s.names(), s.undocumented())
}

func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.Join(s.dir, filepath.Base(p.Filename)), p.Line)
}

func (s *source) names() []string {
	name := s.files[0].Name.Name
	if slices.Contains(vague, name) {
		return []string{fmt.Sprintf("%s: package %s: a name says what is inside", s.dir, name)}
	}
	return nil
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

// sources parses every package of the library and of the program.
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
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && !slices.Contains(modules, dir) {
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
	for name, tc := range map[string]struct{ src, want string }{
		"clean":                {"package a\n\n// F is short.\nfunc F(a, b, c, d int) {}\n", ""},
		"vague name":           {"package util\n", "package util"},
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
