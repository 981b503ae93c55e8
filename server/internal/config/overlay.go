package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

// An Overlay adds Weir's own keys to limits that name no algorithm: an algorithm, a
// burst, a time zone. It is for rules whose source cannot express them. It is
// immutable and safe for concurrent use.
type Overlay struct {
	// Text is that of the file.
	Text  string
	lines []overlayLine
}

// An overlayLine changes the limits of the rules that it fits.
type overlayLine struct {
	at           Position
	domain, path string // patterns; empty for any
	unit         string // empty for any
	fields       map[string]field
}

var (
	inOverlayFile = newScope("in the overlay", "overlay",
		"Changes rules that are not in a file.",
		property{name: "overlay", form: asMaps, of: "line", required: true, doc: "The lines. The first one that fits a rule counts."},
	)
	inOverlay = newScope("in a line of the overlay", "line",
		"Changes the rules that it fits.",
		append([]property{
			{name: "domain", absent: "any", doc: "The domain of the rules. Each * stands for any text."},
			{name: "path", absent: "any", doc: "The keys and values on the way to the rules, as user=premium,path=/login. Each * stands for any text."},
			{name: "unit", form: asWord, words: unitNames, absent: "any", doc: "The unit of the rules."},
		}, overlayKeys()...)...,
	)
)

// overlayKeys are the keys of a limit that a line can add.
func overlayKeys() []property {
	return slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool { return !k.ours && k.name != "algorithm" })
}

// LoadOverlay reads an overlay from a file. The error is of type [Problems].
func LoadOverlay(file string) (*Overlay, error) {
	text, err := settingfile.Read(file, MaxFileBytes)
	if err != nil {
		return nil, Problems{{File: file, What: settingfile.Reason(err), Want: "a file that can be read"}}
	}
	if len(text) > MaxFileBytes {
		return nil, Problems{{File: file, What: "the file is too large", Want: fmt.Sprintf("at most %d bytes", MaxFileBytes)}}
	}
	return ParseOverlay(file, text)
}

// ParseOverlay is LoadOverlay for a file in memory. Problems and positions have the name.
func ParseOverlay(name string, text []byte) (*Overlay, error) {
	p := &parser{file: name, most: max(maxNodes, 2*len(text)), countless: true}
	overlay := &Overlay{Text: string(text)}
	root, ok := p.document(text)
	if ok && root == nil {
		p.note(Problem{Line: 1, Column: 1, What: "the file is empty", Want: "overlay and a list of lines"})
	} else if ok {
		if o, ok := p.object(root, inOverlayFile); ok {
			for _, item := range p.items(o, "overlay") {
				overlay.lines = append(overlay.lines, p.overlayLine(item))
			}
		}
	}
	if p.problems.Sort(); len(p.problems) > 0 {
		return nil, p.problems
	}
	return overlay, nil
}

// overlayLine reads a line and checks it with a limit that every algorithm and the keep accept.
func (p *parser) overlayLine(n *yaml.Node) overlayLine {
	o, ok := p.object(n, inOverlay)
	if !ok {
		return overlayLine{}
	}
	line := overlayLine{at: p.position(o.node), domain: p.text(o, "domain"), path: p.text(o, "path")}
	if p.get(o, "unit") != nil {
		line.unit, _ = p.unit(o)
	}
	if !o.has("algorithm") {
		p.report(o.node, "a line without algorithm", "an algorithm: "+oneOf(algorithms()))
		return line
	}
	line.fields = maps.Clone(o.fields)
	for _, key := range []string{"domain", "path", "unit"} {
		delete(line.fields, key)
	}
	most := mostUnits
	if p.scalarOf(o, "algorithm") == weir.FixedWindow.String() {
		most = mostWindow
	}
	p.limit(line.onto(object{o.node, map[string]field{
		"requests_per_unit": fieldAt(o.node, "requests_per_unit", fmt.Sprint(max(0, min(p.number(o, "keep"), int64(most)-1))+1)), "unit": fieldAt(o.node, "unit", cmp.Or(line.unit, "month")),
	}}), nil)
	return line
}

// fieldAt is a field that stands where a node does.
func fieldAt(n *yaml.Node, key, value string) field {
	scalar := func(text string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: n.Line, Column: n.Column}
	}
	return field{scalar(key), scalar(value)}
}

// onto returns a limit with the keys that the line adds.
func (l *overlayLine) onto(o object) object {
	changed := object{o.node, maps.Clone(o.fields)}
	maps.Copy(changed.fields, l.fields)
	if changed.has("period") {
		delete(changed.fields, "unit")
	}
	return changed
}

// has reports whether a node is one of the keys that the line adds.
func (l *overlayLine) has(n *yaml.Node) bool {
	return l != nil && l.fields[n.Value].key == n
}

// overlaid returns the limit of an object as the first fitting line of the overlay
// changes it; false if it stays as it is. A line that would make the limit invalid
// leaves it alone and is noted.
func (p *parser) overlaid(o object) (RateLimit, bool) {
	line := p.overlay.line(p.name, strings.Join(p.path, ","), o, p)
	if line == nil {
		return RateLimit{}, false
	}
	trial := &parser{file: p.file, pathOf: p.pathOf, added: line}
	if p.pathOf == nil {
		trial.pathOf = func(line int) string { return fmt.Sprintf("line %d", line) }
	}
	limit := trial.limit(line.onto(o), nil)
	if len(trial.problems) > 0 {
		mistake := trial.problems[0]
		if len(p.refused) < MaxProblems {
			what := fmt.Sprintf("the rule %s of domain %s, %v, cannot have this: %s", strings.Join(p.path, ","), quote(p.name), p.position(o.node), mistake.What)
			p.refused = append(p.refused, line.at.problem(what, mistake.Want))
		}
		return RateLimit{}, false
	}
	limit.At, limit.Overlay = p.position(o.node), line.at
	limit.Sent = fmt.Sprintf("%d per %s", p.number(o, "requests_per_unit"), strings.ToLower(p.get(o, "unit").Value))
	return limit, true
}

// line returns the first line that fits a limit; nil for none, and for limits that
// name an algorithm or are none.
func (o *Overlay) line(domain, path string, limit object, p *parser) *overlayLine {
	unit := p.scalarOf(limit, "unit")
	if o == nil || limit.has("algorithm") || unit == "" || !plainFalse(p.scalarOf(limit, "unlimited")) {
		return nil
	}
	for i := range o.lines {
		l := &o.lines[i]
		if fitsPattern(l.domain, domain) && fitsPattern(l.path, path) && (l.unit == "" || strings.EqualFold(l.unit, unit)) {
			return l
		}
	}
	return nil
}

// scalarOf is the text of a key's scalar, or empty.
func (p *parser) scalarOf(o object, key string) string {
	if n := p.get(o, key); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func plainFalse(word string) bool { return word == "" || !truths[strings.ToLower(word)] }

// fitsPattern reports whether a pattern fits a text. An empty pattern fits any.
func fitsPattern(pattern, text string) bool { return pattern == "" || NewGlob(pattern).Match(text) }

// entryPath is a descriptor's entry in the path that lines of the overlay fit.
func entryPath(d *Descriptor) string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "=" + d.Value
}

// Check returns the lines of the overlay that did not change the domains that were read
// with it: lines that match no rule, and lines that do not fit a rule. The error is of
// type [Problems], or nil.
func (o *Overlay) Check(domains []*Domain) error {
	if o == nil {
		return nil
	}
	used := map[Position]bool{}
	var problems Problems
	for _, d := range domains {
		markOverlay(d.Descriptors, used)
		problems = append(problems, d.overlay...)
	}
	for _, p := range problems {
		used[Position{p.File, p.Line, p.Column}] = true
	}
	for i := range o.lines {
		if at := o.lines[i].at; !used[at] {
			problems = append(problems, at.problem("the line fits no rule", "the domain and path of a rule without algorithm"))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	problems.Sort()
	return problems
}

func markOverlay(list []*Descriptor, used map[Position]bool) {
	for _, d := range list {
		for i := range d.Limits {
			used[d.Limits[i].Overlay] = true
		}
		markOverlay(d.Descriptors, used)
	}
}
