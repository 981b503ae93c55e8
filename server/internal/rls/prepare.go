package rls

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/server/internal/callers"
)

// A Prepared request was decoded, and its caller may make it. It may be decided after its call
// has been answered.
type Prepared struct {
	service *Service
	planned Planned
	failed  error // why there is no plan
	text    string
	bytes   int64
}

// Prepare decodes and plans a request for [Prepared.Decide]. Decoding is charged to call. The
// error is a status, or that of call: the request is malformed or has too many parts, or its
// caller lacks a right. All other mistakes are errors of Decide.
func (s *Service) Prepare(ctx context.Context, call Charger, raw []byte) (*Prepared, error) {
	m := messages.Get().(*message)
	m.bounds, m.call = s.options.Bounds, call
	if err := m.receive(ctx, raw); err != nil {
		m.free()
		return nil, err
	}
	m.call = nil
	p := &Prepared{service: s, text: m.text}
	p.bytes = int64(len(m.text) + len(m.request.Descriptors)*descriptorBytes + len(m.entries)*entryBytes)
	c, err := s.plan(ctx, s.options.Rules(), &m.request)
	if forbidden := new(callers.ForbiddenError); errors.As(err, &forbidden) {
		m.free()
		return nil, statusOf(err)
	}
	p.planned, p.failed = Planned{m, c}, err
	return p, nil
}

// Bytes is about how much memory the request takes.
func (p *Prepared) Bytes() int64 { return p.bytes }

// Decide decides the request, once, and returns the encoded answer. The deadline is that of ctx,
// or else the service's. The error is a status, or says why the rules cannot decide the request.
func (p *Prepared) Decide(ctx context.Context) ([]byte, error) {
	if p.failed != nil {
		p.planned.message.free()
		return nil, p.failed
	}
	return p.service.decideOne(ctx, p.planned, nil)
}

// Names returns the domain of the request, and the keys of a descriptor, of all descriptors for
// -1: "country,user; path". Neither is much longer than most, in bytes. Values are not shown.
func (p *Prepared) Names(descriptor, most int) (domain, keys string) {
	var all []string
	size, i := 0, -1
	for f, rest := (field{}), []byte(p.text); len(rest) > 0 && f.consume(&rest); {
		switch {
		case f.is(1, protowire.BytesType):
			domain = string(f.bytes[:min(len(f.bytes), most)])
		case f.is(2, protowire.BytesType):
			if i++; descriptor >= 0 && i != descriptor || size > most {
				continue
			}
			if of := keysOf(f.bytes, most); len(all) == 0 || all[len(all)-1] != of {
				all, size = append(all, of), size+len(of)
			}
		}
	}
	return domain, strings.Join(all, "; ")
}

// keysOf returns the keys of an encoded descriptor.
func keysOf(descriptor []byte, most int) string {
	var keys []byte
	for f, rest := (field{}), descriptor; len(rest) > 0 && len(keys) <= most && f.consume(&rest); {
		if !f.is(1, protowire.BytesType) {
			continue
		}
		if len(keys) > 0 {
			keys = append(keys, ',')
		}
		key := []byte(nil)
		for e, entry := (field{}), f.bytes; len(entry) > 0 && e.consume(&entry); {
			if e.is(1, protowire.BytesType) {
				key = e.bytes
			}
		}
		keys = append(keys, key[:min(len(key), most)]...)
	}
	return string(keys)
}
