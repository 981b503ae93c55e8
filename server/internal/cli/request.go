package cli

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// requestSyntax says how a request is written on a command line.
const requestSyntax = `a domain, a space, and entries key=value separated by commas; a semicolon
begins another descriptor of the same request. A backslash escapes a space, comma,
semicolon or backslash, and an equals sign in a key.`

// parseRequest reads a request for one unit, as requestSyntax has it.
func parseRequest(text string) (*rules.Request, error) {
	s := scanner{text: text}
	domain, err := s.until(" ")
	if err != nil {
		return nil, err
	}
	req := &rules.Request{Domain: domain, Cost: 1, Immediate: true}
	for s.end = ';'; s.end == ';'; {
		s.skipSpaces()
		entries, err := s.entries()
		if err != nil {
			return nil, err
		}
		req.Descriptors = append(req.Descriptors, entries)
	}
	return req, nil
}

// A scanner takes a request's text apart.
type scanner struct {
	text string
	at   int
	end  byte // what ended the last part; 0 at the end of the text
}

func (s *scanner) skipSpaces() {
	s.at += len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], " "))
}

func (s *scanner) entries() ([]rules.Entry, error) {
	var entries []rules.Entry
	for {
		begin := s.at
		key, err := s.until("=,;")
		if err != nil {
			return nil, err
		}
		if s.end != '=' || key == "" {
			return nil, s.wrong(s.text[begin:], "key=value")
		}
		value, err := s.until(",;")
		if err != nil {
			return nil, err
		}
		entries = append(entries, rules.Entry{Key: key, Value: value})
		if s.end != ',' {
			return entries, nil
		}
	}
}

// until reads up to one of the ends, or to the end of the text.
func (s *scanner) until(ends string) (string, error) {
	var part strings.Builder
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '\\':
			s.at++
			if s.at == len(s.text) || strings.IndexByte(` ,;=\`, s.text[s.at]) < 0 {
				return "", s.wrong(s.text[s.at-1:], `behind a backslash a space, "," ";" "=" or another backslash`)
			}
			part.WriteByte(s.text[s.at])
		case strings.IndexByte(ends, c) >= 0:
			s.end = c
			s.at++
			return part.String(), nil
		default:
			part.WriteByte(c)
		}
	}
	s.end = 0
	return part.String(), nil
}

func (s *scanner) wrong(rest, want string) error {
	return &weir.InvalidError{Field: "request " + fmt.Sprintf("%q", s.text), Value: fmt.Sprintf("%q", rest), Want: want}
}
