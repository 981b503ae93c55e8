package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// combinedParser reads
//
//	ADDR IDENT USER [TIME] "REQUEST" STATUS BYTES ["REFERER" "AGENT" ["FORWARDED FOR"]] …
//
// which is what nginx and Apache write unless told otherwise, and what many append
// the addresses of X-Forwarded-For to.
type combinedParser struct{ dater dater }

func (p *combinedParser) parse(line string, r *Record) error {
	s := scanner{line}
	addr, _, user := s.word(), s.word(), s.word()
	text, ok := s.between('[', ']')
	if !ok {
		return errors.New("no time in brackets behind the first three words")
	}
	micros, err := p.dater.read(text, commonTime)
	if err != nil {
		return err
	}
	request, ok := s.quoted()
	if !ok {
		return errors.New("no request in quotes behind the time")
	}
	status, bytes := s.word(), s.word()
	if len(status) != 3 {
		return fmt.Errorf("the status %s has not three digits", shortened(status))
	}
	r.Micros = micros
	r.add("remote_addr", addr)
	r.add("remote_user", user)
	r.addRequest(request)
	r.add("status", status)
	r.add("body_bytes_sent", bytes)
	for _, name := range []string{"http_referer", "http_user_agent", "http_x_forwarded_for"} {
		value, ok := s.quoted()
		if !ok {
			break
		}
		r.add(name, value)
	}
	return nil
}

// envoyParser reads Envoy's default format, documented at
// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
//
//	[TIME] "REQUEST" STATUS FLAGS … "FORWARDED FOR" "AGENT" "REQUEST ID" "AUTHORITY" "UPSTREAM"
//
// Between the flags and the first quote are numbers, and in some versions words.
// There is no address of the client but that in the X-Forwarded-For.
type envoyParser struct{ dater dater }

func (p *envoyParser) parse(line string, r *Record) error {
	s := scanner{line}
	text, ok := s.between('[', ']')
	if !ok {
		return errors.New("does not begin with a time in brackets")
	}
	micros, err := p.dater.read(text, "")
	if err != nil {
		return err
	}
	request, ok := s.quoted()
	if !ok {
		return errors.New("no request in quotes behind the time")
	}
	r.Micros = micros
	r.addRequest(request)
	r.add("status", s.word())
	r.add("response_flags", s.word())
	last, ok := p.numbers(&s)
	if !ok {
		return errors.New("no five texts in quotes at its end")
	}
	r.add("body_bytes_sent", last)
	for _, name := range []string{"http_x_forwarded_for", "http_user_agent", "http_x_request_id", "http_host", "upstream_host"} {
		value, ok := s.quoted()
		if !ok {
			return fmt.Errorf("no %s in quotes at its end", name)
		}
		r.add(name, value)
	}
	if forwarded, ok := r.get("http_x_forwarded_for"); ok {
		// The last one is who was connected to this Envoy.
		r.add("remote_addr", strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:]))
	}
	return nil
}

// numbers passes over what stands before the last five quoted texts, and returns
// the bytes that were sent: the third from the right of what is a number or "-".
func (p *envoyParser) numbers(s *scanner) (string, bool) {
	var words [16]string
	n := 0
	for n < len(words) {
		s.rest = strings.TrimLeft(s.rest, " ")
		if strings.HasPrefix(s.rest, `"`) {
			if strings.Count(s.rest, `"`) <= 10 {
				break
			}
			s.quoted()
			continue
		}
		if s.rest == "" {
			return "", false
		}
		words[n] = s.word()
		n++
	}
	if n < 3 {
		return "", false
	}
	return words[n-3], true
}

// timed finds the time among the fields.
func (r *Record) timed(d *dater, name string) error {
	names := timeFields
	if name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if text, ok := r.get(name); ok {
			micros, err := d.read(text, "")
			r.Micros = micros
			return err
		}
	}
	return fmt.Errorf("no time in %s", strings.Join(names, ", "))
}
