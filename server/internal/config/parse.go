package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// parser walks the nodes of one file and records every mistake.
type parser struct {
	file     string
	problems Problems
	noted    map[Problem]bool
	nodes    int
	most     int // nodes that may be visited; 0: maxNodes
	// pathOf describes the node that has a line, for rules that are not in a file;
	// nil for those that are.
	pathOf  func(line int) string
	overlay *Overlay // nil for none
	// prices are the price files that can be named, by their paths; nil for rules in no file.
	prices map[string]text
	// countless says that limits have a made-up count: lines of the overlay have none.
	countless bool
	// added is the line of the overlay with which a limit is tried; nil for none.
	added   *overlayLine
	refused Problems // lines of the overlay that fit a rule and cannot change it
	// name and path are the domain and the descriptors on the way to the one that is
	// read, for the overlay.
	name string
	path []string
	// budgets are those that the descriptor which is read can charge, the nearest last.
	budgets []*declared
	// together are the budgets that alternatives of one descriptor charge.
	together [][]*Budget
}

// parse returns the domain in a file's text, and its mistakes.
func (p *parser) parse(text []byte) (*Domain, Problems) {
	if len(text) > MaxFileBytes {
		p.note(Problem{What: "the file is too large", Want: fmt.Sprintf("at most %d bytes", MaxFileBytes)})
		return nil, p.problems
	}
	p.most = max(maxNodes, 2*len(text))
	root, ok := p.document(text)
	if !ok {
		return nil, p.problems
	}
	return p.read(root)
}

// read returns the domain in a node, and its mistakes in the order of their positions.
func (p *parser) read(root *yaml.Node) (*Domain, Problems) {
	domain := p.domain(root)
	p.problems.Sort()
	if p.pathOf == nil {
		return domain, p.problems
	}
	for i := range p.problems {
		at := &p.problems[i]
		if at.Line > 0 {
			at.File += " " + p.pathOf(at.Line)
			at.Line, at.Column = 0, 0
		}
	}
	return domain, p.problems
}

// Document returns the root of a YAML file's only document, nil if it is empty, or the
// mistakes for which the file cannot be read.
func Document(file string, text []byte) (*yaml.Node, Problems) {
	p := &parser{file: file}
	root, _ := p.document(text)
	return root, p.problems
}

// document returns the root of the file's only document; nil if it is empty.
func (p *parser) document(text []byte) (*yaml.Node, bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first yaml.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		p.syntax(text, err)
		return nil, false
	}
	for {
		var next yaml.Node
		err := decoder.Decode(&next)
		if errors.Is(err, io.EOF) {
			return content(&first), true
		}
		if err != nil {
			p.syntax(text, err)
			return nil, false
		}
		if root := content(&next); root != nil {
			p.report(root, "a second YAML document", "one document a file")
			return content(&first), true
		}
	}
}

// content is the root of a document, or nil where there is nothing but comments.
func content(document *yaml.Node) *yaml.Node {
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		return nil
	}
	return document.Content[0]
}

var (
	yamlError     = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxHints are advice on the YAML parser's messages. The first that matches is used.
var syntaxHints = []struct{ message, want string }{
	{"',' or '}'", "commas between the items of {…}, and a } at the end"},
	{"',' or ']'", "commas between the items of […], and a ] at the end"},
	{"tab character", "spaces in place of tabs"},
	{"cannot start any token", "spaces in place of tabs, and quotes around values that begin with %, @ or `"},
	{"unexpected end of stream", "the quote that ends the text"},
	{"mapping values are not allowed", "one key: value a line, a colon behind each key, and quotes around values with a colon"},
	{"alphabetic or numeric character", "quotes around values that begin with *, & or !"},
	{"expected '-' indicator", "the indentation of the other items of the list"},
	{"expected key", "the indentation of the other keys of the map"},
	{"could not find expected ':'", "a colon behind the key"},
	{"", "an indentation of spaces, and quotes around values with special characters"},
}

// syntax notes a mistake that the YAML parser found, which ends the walk before it
// begins.
func (p *parser) syntax(text []byte, err error) {
	problem := Problem{Line: 1, Column: 1, What: err.Error()}
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		problem.What = m[2]
		if line, err := strconv.Atoi(m[1]); err == nil && line > 0 {
			problem.Line = line
		}
	}
	if line := brokenLine(text); line > 0 {
		at := bytes.Split(text, []byte("\n"))[line-1]
		problem.Line, problem.Column = line, 1+len(at)-len(bytes.TrimLeft(at, " \t"))
	}
	for _, hint := range syntaxHints {
		if strings.Contains(problem.What, hint.message) {
			problem.Want = hint.want
			break
		}
	}
	if m := unknownAnchor.FindStringSubmatch(problem.What); m != nil {
		before, _, _ := bytes.Cut(text, []byte("*"+m[1]))
		problem.Line = 1 + bytes.Count(before, []byte("\n"))
		problem.Column = len(before) - bytes.LastIndexByte(before, '\n')
		problem.Want = "an anchor &" + m[1] + " above it"
	}
	problem.What = "not YAML: " + problem.What
	p.note(problem)
}

// maxSearched is the size of the largest text in which brokenLine searches, in bytes.
const maxSearched = 64 << 10

// brokenLine returns the line behind the longest part of a text that is YAML: there an
// error begins, or the quote or bracket that nothing closes. The parser's own line is often
// the one that began the map or list around it. 0 is for a text that is too long.
func brokenLine(text []byte) int {
	if len(text) > maxSearched {
		return 0
	}
	ends := []int{0} // of the lines
	for i, c := range text {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	// Errors in a part of a text stay in longer ones, except those of brackets and quotes
	// that are closed a few lines further on.
	const few = 16
	good, bad := 0, len(ends)
	for good+1 < bad {
		middle := (good + bad) / 2
		found := false
		for line := middle; line < min(middle+few, bad) && !found; line++ {
			if found = isYAML(text[:ends[line]]); found {
				good = line
			}
		}
		if !found {
			bad = middle
		}
	}
	return good + 1
}

func isYAML(text []byte) bool {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := decoder.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// report records a mistake at a node.
func (p *parser) report(n *yaml.Node, what, want string) {
	p.suggest(n, what, want, "")
}

func (p *parser) suggest(n *yaml.Node, what, want, suggestion string) {
	p.note(Problem{Line: n.Line, Column: n.Column, What: what, Want: want, Suggestion: suggestion})
}

// note records a mistake, only once however often aliases repeat its position.
func (p *parser) note(problem Problem) {
	problem.File = cmp.Or(problem.File, p.file)
	if p.noted == nil {
		p.noted = map[Problem]bool{}
	}
	if p.noted[problem] || len(p.problems) > MaxProblems {
		return
	}
	if len(p.problems) == MaxProblems {
		problem = Problem{File: p.file, What: fmt.Sprintf("more than %d mistakes; the others are not listed", MaxProblems)}
	}
	p.noted[problem] = true
	p.problems = append(p.problems, problem)
}

// exhausted reports whether the walk has reached its bound of nodes or mistakes.
func (p *parser) exhausted() bool {
	return p.nodes > cmp.Or(p.most, maxNodes) || len(p.problems) > MaxProblems
}

// visit returns the node that a node stands for. It returns nil for an absent or null
// node, and for the rest of a file that has become too large.
func (p *parser) visit(n *yaml.Node) *yaml.Node {
	if n == nil || p.exhausted() {
		return nil
	}
	if p.nodes++; p.exhausted() {
		p.report(n, "the file is too large once its aliases are replaced", fmt.Sprintf("at most %d nodes", cmp.Or(p.most, maxNodes)))
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return nil
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kind returns the name of a node's type, for messages.
func kind(n *yaml.Node) string {
	switch {
	case n == nil:
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	default:
		return quote(n.Value)
	}
}

func (p *parser) position(n *yaml.Node) Position {
	if p.added.has(n) {
		return Position{File: fmt.Sprintf("%s:%d", p.added.at.File, n.Line)}
	}
	if p.pathOf != nil {
		return Position{File: p.file + " " + p.pathOf(n.Line)}
	}
	return Position{p.file, n.Line, n.Column}
}

func (p *parser) domain(root *yaml.Node) *Domain {
	if root == nil {
		p.note(Problem{Line: 1, Column: 1, What: "the file is empty", Want: "domain and descriptors"})
		return nil
	}
	o, ok := p.object(root, atTop)
	if !ok {
		return nil
	}
	d := &Domain{Name: p.text(o, "domain"), At: p.position(o.position("domain"))}
	p.required(o, "domain", d.Name, "the name of the domain")
	p.name = d.Name
	d.Models = p.models(o)
	p.priceFile(o, d)
	d.Classes = p.classNames(o)
	d.Calls = p.calls(o)
	d.Budgets = p.declare(o, 0)
	d.Descriptors = p.descriptors(o, nil)
	for _, problem := range quotaOrders(d.Descriptors) {
		p.note(problem)
	}
	p.leave(0)
	p.joinTags()
	d.overlay = p.refused
	return d
}

// required reports a text that is missing or empty, unless another mistake was reported
// there already.
func (p *parser) required(o object, key, text, want string) {
	if text != "" {
		return
	}
	if !o.has(key) {
		p.report(o.node, key+" is missing", want)
	} else if n := p.get(o, key); n == nil || n.Kind == yaml.ScalarNode && n.Value == "" {
		p.report(o.position(key), key+" is empty", want)
	}
}
