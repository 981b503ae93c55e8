package weir_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// A private word has a meaning of its own in this project, which readers would have to
// guess. The field has a term for each.
type private struct {
	word   string // a word, or several in a row
	term   string // what to write
	after  string // words before it that make it a common one
	before string // words behind it that do
}

var privates = []private{
	{word: "spared", term: "not charged"},
	{word: "unasked", term: "not evaluated"},
	{word: "tell tells told telling hear hears heard hearing", term: "publish, subscribe, notify or report"},
	{word: "door doors", term: "listener"},
	{word: "away gone", term: "unreachable, closed, removed or ended"},
	{word: "back", term: "recovered, refund, return or restore", after: "roll", before: "off end ground ups"},
	{word: "mend mends mended mending", term: "reconcile"},
	{word: "owe owes owed owing debt debts", term: "outstanding charges, reconcile"},
	{word: "forgive forgives forgiven", term: "reconcile, refund"},
	{word: "place places", term: "slot (of a concurrency limit)", after: "in", before: "holder holders"},
	{word: "neighbour neighbours", term: "peers"},
	{word: "others", term: "peers"},
	{word: "distinct", term: "key limit"},
	{word: "look looks looked looking", term: "peek", before: "up ups"},
	{word: "share shares", term: "local share, guaranteed share or lease", after: "local guaranteed", before: "one"},
	{word: "hand+over hands+over handed+over", term: "delegate, pass"},
	{word: "under+way underway", term: "in flight"},
	{word: "leave+together travel+together", term: "batch"},
	{word: "kept+apart keep+apart", term: "tracked"},
	{word: "meanwhile", term: "during the outage"},
	{word: "whoever whatever", term: "the thing's name"},
}

// spelled has the names that hold a private word for a reason.
var spelled = map[string]string{
	"weir_models_forgiven_units_total": "a name that others rely on",
	"goAway":                           "a frame of HTTP/2",
	"lookPath":                         "stands for exec.LookPath",
	"Shares":                           "guaranteed shares of a budget, weir.Shares",
	"shares":                           "guaranteed shares of a budget, weir.Shares",
	"Keys in shares":                   "shares, a key of rules files",
	"ShareThreshold":                   "share_threshold, a key of envoyproxy/ratelimit",
	"Debt":                             "the units that a limit was charged beyond its capacity",
	"Distinct":                         "counts different keys, as in SQL",
	"distinct":                         "counts different keys, as in SQL",
}

// privateIn returns the private word among the words of a name or a text, and the
// term to write in its place.
func privateIn(words []string) (word, term string) {
	for _, p := range privates {
		for _, w := range strings.Fields(p.word) {
			run := strings.Split(w, "+")
			for i := 0; i+len(run) <= len(words); i++ {
				if slices.Equal(words[i:i+len(run)], run) && !p.common(words, i, i+len(run)) {
					return strings.Join(run, " "), p.term
				}
			}
		}
	}
	return "", ""
}

// common says whether the words around from and to make a word one of the language.
func (p private) common(words []string, from, to int) bool {
	return from > 0 && slices.Contains(strings.Fields(p.after), words[from-1]) ||
		to < len(words) && slices.Contains(strings.Fields(p.before), words[to])
}

// wordsOf splits a name in camel case, a name with underscores or dashes, or a text.
func wordsOf(text string) []string {
	var words []string
	var word []rune
	runes := []rune(text)
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	for i, r := range runes {
		if !unicode.IsLetter(r) {
			end()
			continue
		}
		upper := unicode.IsUpper(r) && i > 0
		if upper && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

// A wording is a name or a text that readers meet.
type wording struct{ where, kind, text string }

// TestPrivateWords holds identifiers, metrics, flags, log messages and headings
// against the list of private words.
func TestPrivateWords(t *testing.T) {
	t.Parallel()
	all := headings(t)
	for _, path := range goFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			all = append(all, wordingsIn(t, path, nil)...)
		}
	}
	for _, w := range all {
		word, term := privateIn(wordsOf(w.text))
		if word != "" && spelled[w.text] == "" {
			t.Errorf("%s: %s %q: %q is a private word; write %s", w.where, w.kind, w.text, word, term)
		}
	}
	if len(all) < 5000 {
		t.Errorf("only %d names and texts were found", len(all))
	}
}

// TestPrivateWordsCatches: the test above must see what is wrong, and only that.
func TestPrivateWordsCatches(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"limitsSpared": "spared", "owedKeys": "owed", "HandOver": "hand over", "weir_lease_shares_total": "shares",
		"look-ahead": "look", "HTTPDoor": "door", "askedIDBack": "back", "the store is back": "back",
		"lookUp": "", "lookup": "", "fallback": "", "localShare": "", "backOff": "", "rollBack": "", "placeholder": "", "replace": "", "sharedBudget": "",
	} {
		if got, _ := privateIn(wordsOf(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	src := "package door\ntype owes struct{ told, ok int }\nfunc f(away int) { back := 1; log.Warn(\"it is gone\", back) }\n" +
		"var x = fs.Int(\"look\", 0, \"\")\nvar y = opts(\"weir_debts_total\")\nconst places = 1\ntype i interface{ Mend() }\n"
	found := map[string]bool{}
	for _, w := range wordingsIn(t, "a.go", src) {
		if word, _ := privateIn(wordsOf(w.text)); word != "" {
			found[w.kind+" "+w.text] = true
		}
	}
	want := []string{"package door", "type owes", "field told", "log it is gone", "flag look", "metric weir_debts_total", "const places", "field Mend"}
	for _, w := range want {
		if !found[w] {
			t.Errorf("%s was not found", w)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %v", found)
	}
}

// TestCommentsName: a comment begins with the name that it describes, singular or plural. This
// finds functions and types that were renamed without their comments.
func TestCommentsName(t *testing.T) {
	t.Parallel()
	described := 0
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		for _, d := range file.Decls {
			name, doc := documented(d)
			if doc.Text() == "" {
				continue
			}
			if described++; !beginsWith(doc.Text(), name) {
				t.Errorf("%s:%d: the comment of %s begins with another name: %q", path, fset.Position(d.Pos()).Line, name, firstLine(doc.Text()))
			}
		}
	}
	if described < 3000 {
		t.Errorf("only %d comments were found", described)
	}
}

// documented returns the name of a function, or of a type that is declared alone, and its comment.
func documented(d ast.Decl) (string, *ast.CommentGroup) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name.Name, d.Doc
	case *ast.GenDecl:
		if d.Tok == token.TYPE && !d.Lparen.IsValid() {
			return d.Specs[0].(*ast.TypeSpec).Name.Name, d.Doc
		}
	}
	return "", nil
}

// beginsWith reports whether a comment begins with a name, perhaps behind an article.
func beginsWith(text, name string) bool {
	words := strings.Fields(text)
	if slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return false
	}
	first := strings.ToLower(strings.TrimRight(words[0], ",.:;'s"))
	return first == strings.ToLower(strings.TrimRight(name, "s"))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

var (
	metric = regexp.MustCompile(`^weir_[a-z_]+$`)
	logs   = []string{"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log", "LogAttrs"}
	flags  = []string{
		"Bool", "BoolVar", "Duration", "DurationVar", "Int", "IntVar", "Int64", "Int64Var", "Float64", "Float64Var",
		"String", "StringVar", "StringArray", "StringArrayVar", "StringSlice", "StringSliceVar", "Uint64", "Uint64Var", "Var",
		"BoolP", "BoolVarP", "DurationVarP", "IntVarP", "StringVarP", "VarP",
	}
)

// wordingsIn returns the names that a file declares, but for those inside functions,
// and its metrics, flags and log messages.
func wordingsIn(t *testing.T, path string, src any) []wording {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	var all []wording
	add := func(n ast.Node, kind, text string) {
		all = append(all, wording{fmt.Sprintf("%s:%d", path, fset.Position(n.Pos()).Line), kind, text})
	}
	add(file, "package", file.Name.Name)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d, "func", d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec, "type", spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						add(name, d.Tok.String(), name.Name)
					}
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			eachName(n.Fields, func(name *ast.Ident) { add(name, "field", name.Name) })
		case *ast.InterfaceType:
			eachName(n.Methods, func(name *ast.Ident) { add(name, "field", name.Name) })
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && metric.MatchString(text) {
				add(n, "metric", text)
			}
		case *ast.CallExpr:
			if kind, text := called(n); kind != "" {
				add(n, kind, text)
			}
		}
		return true
	})
	return all
}

func eachName(fields *ast.FieldList, do func(*ast.Ident)) {
	for _, f := range fields.List {
		for _, name := range f.Names {
			do(name)
		}
	}
}

// called returns the log message or the name of the flag that a call has.
func called(call *ast.CallExpr) (kind, text string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	switch {
	case slices.Contains(logs, method.Sel.Name):
		kind = "log"
	case slices.Contains(flags, method.Sel.Name) && len(call.Args) > 1:
		kind = "flag"
	default:
		return "", ""
	}
	for _, arg := range call.Args {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				return kind, text
			}
		}
	}
	return "", ""
}

// headings returns the headings of all pages.
func headings(t *testing.T) []wording {
	t.Helper()
	var all []wording
	for _, page := range pages.All(t) {
		for _, text := range pages.Headings(t, page) {
			all = append(all, wording{page, "heading", text})
		}
	}
	return all
}
