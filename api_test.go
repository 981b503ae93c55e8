package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The bounds of what is exported.
const maxNames, maxFields = 225, 163

// published are the folders of the packages that programs import.
var published = []string{".", "clientip", "memstore", "redisstore", "redisstore/queue", "trace", "weirgrpc", "weirhttp"}

// TestAPIStaysSmall counts the exported names of the public packages (functions, types,
// methods, constants and variables) and the fields of their structs. Lower the bounds with
// each step that makes room; raise one only in a commit that says why.
func TestAPIStaysSmall(t *testing.T) {
	t.Parallel()
	names, fields := 0, 0
	for _, folder := range published {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			names += len(exported(file))
			fields += fieldsOf(file)
		}
	}
	if names > maxNames || fields > maxFields {
		t.Errorf("%d names and %d fields are exported, want at most %d and %d", names, fields, maxNames, maxFields)
	}
	if names < maxNames/2 || fields < maxFields/2 {
		t.Errorf("%d names and %d fields are counted: want the whole", names, fields)
	}
}

// fieldsOf counts the exported fields of the exported structs of a file.
func fieldsOf(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		if _, inside := node.(*ast.FuncDecl); inside {
			return false
		}
		spec, ok := node.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range of.Fields.List {
				if f.Names == nil {
					n++
				}
				for _, name := range f.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
		return false
	})
	return n
}
