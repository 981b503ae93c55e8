package callers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/config"
)

// MaxFile is the size of the largest file of callers, in bytes.
const MaxFile = 64 << 20

// The bounds of a file of callers.
const (
	maxCallers    = 100_000
	maxName       = 64
	maxList       = 1024 // of tokens, certificates or domains of a caller
	maxLabels     = 8
	maxLabelKey   = 64 // bytes
	maxLabelValue = 256
)

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	keyForm  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// reservedLabels are the entries that requests have without a label.
var reservedLabels = []string{"key", "model", "end_user"}

// parser reads one file and notes every mistake.
type parser struct {
	file     string
	problems config.Problems
	set      *Set
	callers  int
	lines    int                        // before the piece that is read
	domains  map[string]map[string]bool // by their names, so that callers share them
}

// A FileError lists the mistakes in a file of callers, each with file, line and column. It
// is not a [config.Problems], because commands show the lines of the file with those, and
// a line may hold a secret by mistake.
type FileError []config.Problem

// Error lists the mistakes, one a line.
func (e FileError) Error() string { return config.Problems(e).Error() }

// Unwrap returns [weir.ErrInvalid].
func (e FileError) Unwrap() error { return weir.ErrInvalid }

// Parse reads the text of a file of callers. The error is a [FileError].
func Parse(file string, text []byte) (*Set, error) {
	p := &parser{
		file: file, set: &Set{byName: map[string]*Caller{}, byToken: map[[sha256.Size]byte]*Caller{}, byCertificate: map[string]*Caller{}},
		domains: map[string]map[string]bool{},
	}
	start := &yaml.Node{Line: 1, Column: 1}
	switch {
	case len(text) > MaxFile:
		p.report(start, "the file is too large", fmt.Sprintf("at most %d bytes", MaxFile))
	case len(text) <= maxFile:
		p.piece(text)
	default:
		pieces, regular := piecesOf(text)
		if !regular {
			p.report(start, "the file is too large for its form", fmt.Sprintf("at most %d bytes, or each caller on lines of its own below callers:, as \"  - name: NAME\"", maxFile))
		}
		for _, piece := range pieces {
			p.lines = piece.lines
			if p.piece(piece.text); len(p.problems) >= config.MaxProblems {
				break
			}
		}
	}
	if len(p.problems) > 0 {
		p.problems.Sort()
		return nil, FileError(p.problems)
	}
	return p.set, nil
}

func (p *parser) report(n *yaml.Node, what, want string) {
	if len(p.problems) < config.MaxProblems {
		p.problems = append(p.problems, config.Problem{File: p.file, Line: p.lines + n.Line, Column: n.Column, What: what, Want: want})
	}
}

// piece reads a file, or a piece of it.
func (p *parser) piece(text []byte) {
	root, problems := config.Document(p.file, text)
	for _, problem := range problems {
		problem.Line += p.lines
		p.problems = append(p.problems, problem)
	}
	switch {
	case len(problems) > 0:
	case root == nil:
		p.report(&yaml.Node{Line: 1, Column: 1}, "the file is empty", "callers")
	default:
		p.top(root)
	}
}

func (p *parser) top(root *yaml.Node) {
	list := p.fields(root, "callers")["callers"]
	for _, n := range p.items(list, "callers", maxCallers) {
		if p.callers++; p.callers > maxCallers {
			p.report(n, fmt.Sprintf("more than %d callers", maxCallers), "fewer")
			return
		}
		p.caller(n)
	}
}

func (p *parser) caller(n *yaml.Node) {
	fields := p.fields(n, "name", "labels", "tokens", "certificates", "verbs", "domains")
	if fields == nil {
		return
	}
	c := new(Caller)
	p.name(n, fields["name"], c)
	p.labels(fields["labels"], c)
	for _, item := range p.items(fields["tokens"], "tokens", maxList) {
		p.token(item, c)
	}
	for _, item := range p.items(fields["certificates"], "certificates", maxList) {
		p.certificate(item, c)
	}
	if fields["tokens"] == nil && fields["certificates"] == nil {
		p.report(n, "a caller without tokens and certificates", "tokens, SHA-256 digests, or certificates, names in them")
	}
	p.required(n, fields, "verbs", "one or several of "+everything.String())
	for _, item := range p.items(fields["verbs"], "verbs", maxList) {
		if v := slices.Index(verbNames[:], p.text(item, "a verb")); v >= 0 {
			c.verbs |= 1 << v
		} else {
			p.report(item, fmt.Sprintf("a verb is %q", problem.Shorten(item.Value)), "one of "+everything.String())
		}
	}
	p.required(n, fields, "domains", `a list of domains, or "*" for every one`)
	domains := map[string]bool{}
	for _, item := range p.items(fields["domains"], "domains", maxList) {
		switch domain := p.text(item, "a domain"); domain {
		case "":
			p.report(item, "a domain is empty", `a name, or "*" for every one`)
		case "*":
			c.all = true
		default:
			domains[domain] = true
		}
	}
	c.domains = p.shared(domains)
}

// shared returns the same set of domains for all callers that have it.
func (p *parser) shared(domains map[string]bool) map[string]bool {
	names := strings.Join(slices.Sorted(maps.Keys(domains)), "\x00")
	if known := p.domains[names]; known != nil {
		return known
	}
	p.domains[names] = domains
	return domains
}

// labels reads what is known of a caller, in the order of the keys.
func (p *parser) labels(n *yaml.Node, c *Caller) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 || len(n.Content) > 2*maxLabels {
		p.report(n, "labels is no map, or an empty or a long one", fmt.Sprintf("a map of at most %d keys to texts, such as {user: ann, team: web}", maxLabels))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		l := Label{key.Value, p.text(value, "a label")}
		switch {
		case slices.Contains(reservedLabels, l.Key):
			p.report(key, fmt.Sprintf("a label is called %q", l.Key), "another name: every request has "+strings.Join(reservedLabels, ", ")+" already")
		case !keyForm.MatchString(l.Key) || len(l.Key) > maxLabelKey:
			p.report(key, fmt.Sprintf("a label is called %q", problem.Shorten(l.Key)), fmt.Sprintf("at most %d lower-case letters, digits and underscores, first a letter", maxLabelKey))
		case !isLabel(l.Value):
			p.report(value, fmt.Sprintf("the label %s is %q", l.Key, problem.Shorten(l.Value)), wantLabel)
		case slices.ContainsFunc(c.Labels, func(other Label) bool { return other.Key == l.Key }):
			p.report(key, fmt.Sprintf("the label %s again", l.Key), "each label once")
		default:
			c.Labels = append(c.Labels, l)
			if p.set.keys == nil {
				p.set.keys = map[string]bool{}
			}
			p.set.keys[l.Key] = true
		}
	}
	slices.SortFunc(c.Labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
}

func (p *parser) required(n *yaml.Node, fields map[string]*yaml.Node, key, want string) {
	if fields[key] == nil {
		p.report(n, key+" is missing", want)
	}
}

func (p *parser) name(at, n *yaml.Node, c *Caller) {
	if n == nil {
		p.report(at, "name is missing", "a name for logs and metrics")
		return
	}
	c.Name = p.text(n, "name")
	switch {
	case len(c.Name) > maxName || !nameForm.MatchString(c.Name) || c.Name == Other || c.Name == DefaultUser:
		p.report(n, fmt.Sprintf("name is %q", problem.Shorten(c.Name)),
			fmt.Sprintf("at most %d letters, digits, dots, hyphens and underscores, and neither %q nor %q", maxName, Other, DefaultUser))
	case p.set.byName[c.Name] != nil:
		p.report(n, fmt.Sprintf("a second caller is called %q", c.Name), "a name of its own")
	default:
		p.set.byName[c.Name] = c
	}
}

func (p *parser) token(n *yaml.Node, c *Caller) {
	raw, err := hex.DecodeString(p.text(n, "a token"))
	if err != nil || len(raw) != sha256.Size {
		// It is not repeated: it may be a token.
		p.report(n, "a token is no SHA-256 digest", "64 hexadecimal digits: printf %s TOKEN | sha256sum")
		return
	}
	digest := [sha256.Size]byte(raw)
	if p.set.byToken[digest] != nil {
		p.report(n, "a token is there twice", "each token once")
		return
	}
	p.set.byToken[digest] = c
}

func (p *parser) certificate(n *yaml.Node, c *Caller) {
	name := strings.ToLower(p.text(n, "a certificate"))
	switch {
	case name == "" || strings.ContainsAny(name, "* "):
		p.report(n, fmt.Sprintf("a certificate is %q", problem.Shorten(name)), "a DNS name or a URI of its subject alternative names, without wildcards")
	case p.set.byCertificate[name] != nil:
		p.report(n, fmt.Sprintf("the certificate %q is there twice", problem.Shorten(name)), "each name once")
	default:
		p.set.byCertificate[name] = c
	}
}

// fields returns the values of a map by their keys; nil if it is none.
func (p *parser) fields(n *yaml.Node, known ...string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		p.report(n, "no map", "a map with "+strings.Join(known, ", "))
		return nil
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := n.Content[i]; {
		case !slices.Contains(known, key.Value):
			p.report(key, fmt.Sprintf("unknown key %q", problem.Shorten(key.Value)), "one of "+strings.Join(known, ", "))
		case fields[key.Value] != nil:
			p.report(key, fmt.Sprintf("%q again in the same map", key.Value), "each key once")
		default:
			fields[key.Value] = n.Content[i+1]
		}
	}
	return fields
}

// items returns the items of a list, which has at least one and not too many; none for a list
// that is absent.
func (p *parser) items(n *yaml.Node, what string, most int) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind != yaml.SequenceNode || len(n.Content) == 0:
		p.report(n, what+" is no list, or an empty one", "a list with something in it")
		return nil
	case len(n.Content) > most:
		p.report(n, fmt.Sprintf("%s has %d items", what, len(n.Content)), fmt.Sprintf("at most %d", most))
		return nil
	}
	return n.Content
}

// text returns the text of a node.
func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		p.report(n, what+" is no text", "text")
		return ""
	}
	return n.Value
}
