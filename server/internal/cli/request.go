package cli

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// requestSyntax says how a request is written on a command line.
const requestSyntax = `a domain, a space, and entries key=value separated by commas, or by spaces; a
semicolon begins another descriptor of the same request. A backslash escapes a space,
comma, semicolon or backslash, and an equals sign in a key.`

// parseRequest reads a request for one unit, as requestSyntax has it.
func parseRequest(text string) (*rules.Request, error) {
	s := scanner{text: text, spaced: true}
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

// parseKey reads the arguments that name a key: a domain and the entries of one descriptor,
// as a request, or in several arguments, where spaces are parts of values.
func parseKey(args []string) (domain string, entries []rules.Entry, err error) {
	if len(args) == 1 && strings.Contains(args[0], " ") {
		req, err := parseRequest(args[0])
		if err == nil && len(req.Descriptors) > 1 {
			err = &weir.InvalidError{Field: "key", Value: fmt.Sprintf("%q", args[0]), Want: "one descriptor"}
		}
		if err != nil {
			return "", nil, err
		}
		return req.Domain, req.Descriptors[0], nil
	}
	for _, arg := range args[1:] {
		s := scanner{text: arg}
		more, err := s.entries()
		if err != nil || s.end == ';' {
			return "", nil, &weir.InvalidError{Field: "entry", Value: fmt.Sprintf("%q", arg), Want: `KEY=VALUE; \, is a comma in a value`}
		}
		entries = append(entries, more...)
	}
	return args[0], entries, nil
}

// A scanner takes a request's text apart.
type scanner struct {
	text   string
	at     int
	end    byte // what ended the last part; 0 at the end of the text
	spaced bool // spaces separate entries, too
}

func (s *scanner) skipSpaces() {
	s.at += len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], " "))
}

func (s *scanner) entries() ([]rules.Entry, error) {
	ends := ",;"
	if s.spaced {
		ends = ",; "
	}
	var entries []rules.Entry
	for {
		begin := s.at
		key, err := s.until("=" + ends)
		if err != nil {
			return nil, err
		}
		if s.end != '=' || key == "" {
			return nil, s.wrong(s.text[begin:], "key=value")
		}
		value, err := s.until(ends)
		if err != nil {
			return nil, err
		}
		entries = append(entries, rules.Entry{Key: key, Value: value})
		s.joinSpaces()
		if s.end != ',' {
			return entries, nil
		}
	}
}

// joinSpaces makes the spaces around a separator part of it: a comma, unless there is another
// separator among them.
func (s *scanner) joinSpaces() {
	if s.end == 0 || !s.spaced {
		return
	}
	spaces := s.end == ' '
	s.skipSpaces()
	switch {
	case !spaces:
	case s.at == len(s.text):
		s.end = 0
	case s.text[s.at] == ',' || s.text[s.at] == ';':
		s.end = s.text[s.at]
		s.at++
		s.skipSpaces()
	default:
		s.end = ','
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
