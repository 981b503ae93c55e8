package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// plain reports whether a scalar stands without quotes and is not null.
func plain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&^yaml.TaggedStyle == 0
}

// texts are the tags of the scalars that are text when text is expected. Their
// source stays as it was written: 010 and 1.10 are names here, not numbers.
var texts = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge"}

// text reads the text of a key; absent and null are empty.
func (p *parser) text(o object, key string) string {
	n := p.get(o, key)
	if n == nil {
		return ""
	}
	return p.textOf(n, key)
}

func (p *parser) textOf(n *yaml.Node, what string) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.report(n, what+" is "+kind(n), "text")
	case !slices.Contains(texts, n.ShortTag()):
		p.report(n, what+" is tagged "+quote(n.Tag), "text without a tag")
	case len(n.Value) > MaxTextBytes:
		p.report(n, fmt.Sprintf("%s has %d bytes", what, len(n.Value)), fmt.Sprintf("at most %d", MaxTextBytes))
	default:
		return n.Value
	}
	return ""
}

// printable reads a text that is shown in headers and on terminals.
func (p *parser) printable(o object, key string) string {
	text := p.text(o, key)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		p.report(p.get(o, key), key+" is "+quote(text), "printable text")
		return ""
	}
	return text
}

// word reads one of a few words; false if it is absent, null or none of them.
func (p *parser) word(o object, key string, words []string) (int, bool) {
	n := p.get(o, key)
	if n == nil {
		return 0, false
	}
	if i := slices.Index(words, n.Value); n.Kind == yaml.ScalarNode && i >= 0 {
		return i, true
	}
	p.suggest(n, key+" is "+kind(n), oneOf(words), Nearest(n.Value, words))
	return 0, false
}

var truths = map[string]bool{
	"true": true, "yes": true, "on": true, "y": true, "false": false, "no": false, "off": false, "n": false,
}

// truth reads a boolean in any of YAML 1.1's spellings; absent and null are false.
func (p *parser) truth(o object, key string) bool {
	n := p.get(o, key)
	if n == nil {
		return false
	}
	is, ok := truths[strings.ToLower(n.Value)]
	if !ok || !plain(n) || !cased(n.Value) {
		p.report(n, key+" is "+kind(n), unquoted(n, "true or false"))
		return false
	}
	return is
}

// unquoted returns the expected text in place of a scalar, which may be in quotes.
func unquoted(n *yaml.Node, want string) string {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		want += ", without quotes"
	}
	return want
}

// cased reports whether a word is in lower case, in capitals or capitalized.
func cased(word string) bool {
	return word == strings.ToUpper(word) || word[1:] == strings.ToLower(word[1:])
}

// number reads a whole number in any of YAML 1.1's spellings; absent and null
// are 0.
func (p *parser) number(o object, key string) int64 {
	number, _ := p.integer(o, key)
	return number
}

// positive reads a number whose 0, if written down, is not its default.
func (p *parser) positive(o object, key string) int64 {
	number, ok := p.integer(o, key)
	if ok && number == 0 {
		p.report(p.get(o, key), key+" is 0", "at least 1, or nothing for the default")
	}
	return number
}

// bounded reads a positive number that weir does not check. Otherwise ends the message about
// one that is out of range.
func (p *parser) bounded(o object, key string, most int64, otherwise string) int64 {
	number := p.positive(o, key)
	if number < 0 || number > most {
		p.report(p.get(o, key), fmt.Sprintf("%s is %d", key, number), fmt.Sprintf("1 … %d%s", most, otherwise))
		return 0
	}
	return number
}

// integer reads a whole number and reports whether there is one.
func (p *parser) integer(o object, key string) (int64, bool) {
	n := p.get(o, key)
	if n == nil {
		return 0, false
	}
	number, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	if err != nil || !plain(n) {
		p.report(n, key+" is "+kind(n), unquoted(n, "a whole number"))
		return 0, false
	}
	return number, true
}

// items reads a list; absent and null are empty.
func (p *parser) items(o object, key string) []*yaml.Node {
	n := p.get(o, key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.report(n, key+" is "+kind(n), "a list")
		return nil
	}
	return n.Content
}

// metadata reads free-form data; absent and null are none.
func (p *parser) metadata(o object) map[string]any {
	n := p.get(o, "metadata")
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.report(n, "metadata is "+kind(n), "a map")
		return nil
	}
	m, _ := p.free(n, 0).(map[string]any)
	return m
}

func (p *parser) free(n *yaml.Node, depth int) any {
	at, n := n, p.visit(n)
	switch {
	case n == nil:
		return nil
	case depth > maxNesting:
		p.report(at, "metadata nests too deep", fmt.Sprintf("at most %d levels", maxNesting))
		return nil
	case n.Kind == yaml.MappingNode:
		o, _ := p.fields(n)
		m := make(map[string]any, len(o.fields))
		for key, f := range o.fields {
			m[key] = p.free(f.value, depth+1)
		}
		return m
	case n.Kind == yaml.SequenceNode:
		list := make([]any, 0, min(len(n.Content), 64))
		for _, item := range n.Content {
			list = append(list, p.free(item, depth+1))
		}
		return list
	}
	return p.scalar(n)
}

// scalar reads a number or a boolean as such and anything else as text.
func (p *parser) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool":
		var value any
		if err := n.Decode(&value); err != nil {
			p.report(n, "metadata is "+kind(n), "a number or a boolean, as its tag says")
			return nil
		}
		return value
	}
	return n.Value
}
