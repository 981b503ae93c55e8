package convert

import (
	"fmt"
	"strings"
)

// parser reads the text of one file, as nginx does: words with white space
// between them, up to a semicolon or a block in braces; quotes around words, and
// comments from a "#" at the beginning of a word to the end of the line.
type parser struct {
	file, text string
	at, line   int
	depth      int
}

func parse(file, text string) ([]directive, error) {
	p := &parser{file: file, text: strings.TrimPrefix(text, "\ufeff"), line: 1}
	return p.list()
}

func (p *parser) wrong(what string) error {
	return fmt.Errorf("%s:%d: not nginx's: %s", p.file, p.line, what)
}

// list reads directives up to the end of their block, or of the file.
func (p *parser) list() ([]directive, error) {
	var list []directive
	for {
		switch p.skip(); {
		case p.at == len(p.text) && p.depth > 0:
			return nil, p.wrong(`the file ends within a block; want "}"`)
		case p.at == len(p.text):
			return list, nil
		case p.text[p.at] == '}':
			if p.depth == 0 {
				return nil, p.wrong(`a "}" too many`)
			}
			p.at++
			return list, nil
		}
		d, err := p.directive()
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
}

// skip passes over white space and comments.
func (p *parser) skip() {
	for ; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		case '#':
			end := strings.IndexByte(p.text[p.at:], '\n')
			if end < 0 {
				p.at = len(p.text)
				return
			}
			p.at += end - 1
		default:
			return
		}
	}
}

func (p *parser) directive() (directive, error) {
	d := directive{at: position{p.file, p.line}}
	for {
		p.skip()
		if p.at == len(p.text) {
			return d, p.wrong(`the file ends within a directive; want ";"`)
		}
		switch p.text[p.at] {
		case ';', '{':
			if len(d.words) == 0 {
				return d, p.wrong(fmt.Sprintf("%q without a directive", p.text[p.at]))
			}
			p.at++
			if p.text[p.at-1] == ';' {
				return d, nil
			}
			return p.block(d)
		case '}':
			return d, p.wrong(`"}" within a directive; want ";"`)
		}
		word, err := p.word()
		if err != nil {
			return d, err
		}
		d.words = append(d.words, word)
	}
}

func (p *parser) block(d directive) (directive, error) {
	if strings.HasSuffix(d.name(), "_by_lua_block") {
		return d, p.foreign()
	}
	if p.depth++; p.depth > maxNesting {
		return d, p.wrong("blocks nest too deep")
	}
	list, err := p.list()
	p.depth--
	d.block = list
	return d, err
}

// foreign passes over a block of another language.
func (p *parser) foreign() error {
	for open := 1; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\n':
			p.line++
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				p.at++
				return nil
			}
		}
	}
	return p.wrong(`the file ends within a block; want "}"`)
}

func (p *parser) word() (string, error) {
	if quote := p.text[p.at]; quote == '"' || quote == '\'' {
		return p.quoted(quote)
	}
	var word strings.Builder
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		switch {
		case c == '\\' && p.at+1 < len(p.text):
			p.escape(&word)
		case strings.HasPrefix(p.text[p.at:], "${"):
			// The brace belongs to a variable.
			word.WriteString("${")
			p.at++
		case strings.IndexByte(" \t\r\n;{", c) >= 0:
			return word.String(), nil
		default:
			word.WriteByte(c)
		}
	}
	return word.String(), nil
}

func (p *parser) quoted(quote byte) (string, error) {
	var word strings.Builder
	begin := p.line
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == quote:
			p.at++
			return word.String(), nil
		case c == '\\' && p.at+1 < len(p.text):
			p.escape(&word)
		default:
			if c == '\n' {
				p.line++
			}
			word.WriteByte(c)
		}
	}
	p.line = begin
	return "", p.wrong("a quote that nothing closes")
}

// escape reads a backslash and what follows: quotes and backslashes stand for
// themselves, t, r and n for white space, and before all else the backslash stays.
func (p *parser) escape(word *strings.Builder) {
	p.at++
	switch c := p.text[p.at]; c {
	case '"', '\'', '\\':
		word.WriteByte(c)
	case 't':
		word.WriteByte('\t')
	case 'r':
		word.WriteByte('\r')
	case 'n':
		word.WriteByte('\n')
	default:
		if c == '\n' {
			p.line++
		}
		word.WriteByte('\\')
		word.WriteByte(c)
	}
}
