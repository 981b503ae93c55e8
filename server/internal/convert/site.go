package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A site is a block that limits apply to: http, a server or a location.
type site struct {
	at     position
	name   string // "location /login of server example.org"
	server string
	level  level
	uses   []use // its own, else those of the block around it
	own    bool  // the uses are its own
	refusal
	asks   bool // has an auth_request of its own
	any    bool // satisfy any
	denies bool // has a deny
	// pages are the error_page directives that apply, and ownPages reports whether they are
	// the site's own.
	pages    [][]string
	ownPages bool
}

// A refusal says how a site answers refused requests.
type refusal struct {
	status string
	dryRun bool
}

type level int

const (
	inHTTP level = iota
	inServer
	inLocation
)

// finder walks through a configuration and finds its limits.
type finder struct {
	zones map[string]*zone
	// steady has the computed variables that are the same in a request and in its
	// sub-requests.
	steady map[string]bool
	// binary has the maps whose values contain binary addresses, by variable.
	binary      map[string]*directive
	binaryNames []string // in the order of the configuration
	sites       []site
	rules       []*rule
	lost        []Loss
}

func (f *finder) lose(at position, format string, args ...any) {
	f.lost = append(f.lost, Loss{at.file, at.line, fmt.Sprintf(format, args...)})
}

// find returns the limits of a configuration.
func find(list []directive) *finder {
	f := &finder{zones: map[string]*zone{}, steady: map[string]bool{}, binary: map[string]*directive{}}
	f.declared(list)
	f.walk(list, site{name: "http", refusal: refusal{status: "503"}})
	return f
}

// declared reads the zones and the computed variables, which may follow their uses.
func (f *finder) declared(list []directive) {
	for i := range list {
		d := &list[i]
		switch d.name() {
		case "limit_req_zone":
			z, err := newZone(d)
			if err != nil {
				f.lose(d.at, "%v", err)
			} else if f.zones[z.name] != nil {
				f.lose(d.at, "zone %s again; %s has it too", z.name, f.zones[z.name].at)
			} else {
				f.zones[z.name] = z
			}
		case "geo", "map":
			f.computed(d)
			continue
		case "set":
			f.assigned(d)
		}
		f.declared(d.block)
	}
}

// assigned reports a variable that rewrite directives set to a binary address.
func (f *finder) assigned(d *directive) {
	if len(d.words) == 3 && f.isBinary(d.words[2]) {
		f.lose(d.at, "%s: no header can carry the bytes of a binary address; write $remote_addr in this line", writeWords(d.words))
	}
}

// isBinary reports whether a text contains a binary address.
func (f *finder) isBinary(text string) bool {
	found := false
	replaceVariables(text, func(name string) string {
		found = found || name == "binary_remote_addr" || f.binary[name] != nil
		return name
	})
	return found
}

// computed notes the variable of a map or geo block, if it depends only on variables that
// are the same in sub-requests, or contains binary addresses.
func (f *finder) computed(d *directive) {
	sources := d.words[1:max(1, len(d.words)-1)]
	if len(d.words) < 2 {
		return
	}
	name := strings.TrimPrefix(d.words[len(d.words)-1], "$")
	for i := range d.block {
		line := d.block[i].words
		sources = slices.Concat(sources, line)
		if d.name() == "map" && len(d.words) == 3 && len(line) == 2 && f.isBinary(line[1]) && f.binary[name] == nil {
			f.binary[name] = d
			f.binaryNames = append(f.binaryNames, name)
		}
	}
	for _, v := range newKey(strings.Join(sources, " ")).variables {
		if !f.isSteady(v) {
			return
		}
	}
	f.steady[name] = true
}

var (
	steadyNames = []string{
		"remote_addr", "remote_port", "remote_user", "realip_remote_addr", "proxy_protocol_addr",
		"server_name", "server_addr", "server_port", "host", "hostname", "scheme", "https", "request_uri", "connection", "server_protocol",
		"request_method", "content_type", "content_length", "proxy_add_x_forwarded_for", "binary_remote_addr",
	}
	steadyPrefixes = []string{"http_", "cookie_", "ssl_", "geoip_", "geoip2_"}
)

func (f *finder) isSteady(variable string) bool {
	return f.steady[variable] || slices.Contains(steadyNames, variable) ||
		slices.ContainsFunc(steadyPrefixes, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
}

// walk reads a block, which inherits the settings of the block around it.
func (f *finder) walk(list []directive, s site) {
	around := s.refusal
	for i := range list {
		f.setting(&list[i], &s)
	}
	f.keep(&s, around)
	for i := range list {
		d, inner := &list[i], s
		inner.at, inner.own, inner.asks, inner.ownPages = d.at, false, false, false
		switch d.name() {
		case "http":
		case "server":
			inner.level, inner.server = inServer, "server "+serverName(d.block)
			inner.name = inner.server
		case "location":
			inner.level, inner.name = inLocation, strings.Join(d.words, " ")
			if s.server != "" {
				inner.name += " of " + s.server
			}
		default:
			continue
		}
		f.walk(d.block, inner)
	}
}

// pagesOf reports whether an error_page for a status applies.
func (s *site) pagesOf(status string) bool {
	return slices.ContainsFunc(s.pages, func(page []string) bool { return slices.Contains(page[1:len(page)-1], status) })
}

// keep adds a site that has to ask. Servers and locations ask for the locations inside
// them. http never asks, because a location cannot stand there.
func (f *finder) keep(s *site, around refusal) {
	if len(s.uses) == 0 || s.level == inHTTP {
		return
	}
	if s.asks {
		f.lose(s.at, "%s has an auth_request of its own, and nginx asks only one; its limits are not carried over", s.name)
		return
	}
	if s.any {
		f.lose(s.at, "%s has satisfy any: requests that another check admits pass, even if Weir refuses them", s.name)
	}
	if s.denies {
		f.lose(s.at, "%s has deny: its refusals, too, get the status %s in place of 403", s.name, s.status)
	}
	if s.pagesOf("403") {
		f.lose(s.at, "%s has an error_page for 403, the status of a refused sub-request; put it into the location that refuses", s.name)
	}
	if s.own || s.level == inServer || s.refusal != around || s.ownPages {
		f.sites = append(f.sites, *s)
	}
}

func serverName(block []directive) string {
	for _, name := range []string{"server_name", "listen"} {
		for i := range block {
			if block[i].name() == name && len(block[i].words) > 1 {
				return block[i].words[1]
			}
		}
	}
	return "without a name"
}

// setting reads one directive of a block.
func (f *finder) setting(d *directive, s *site) {
	value := ""
	if len(d.words) > 1 {
		value = d.words[1]
	}
	switch d.name() {
	case "limit_req":
		u, err := newUse(d, f.zones)
		if err != nil {
			f.lose(d.at, "%v", err)
			return
		}
		if !s.own {
			s.uses, s.own = nil, true
		}
		s.uses = append(slices.Clip(s.uses), u)
	case "limit_req_status":
		if code, err := strconv.Atoi(value); err != nil || code < 400 || code > 599 {
			f.lose(d.at, "limit_req_status %s: want 400 … 599", value)
			return
		}
		s.status = value
	case "limit_req_dry_run":
		s.dryRun = value == "on"
	case "limit_req_log_level":
		f.lose(d.at, "limit_req_log_level: Weir logs refusals at its own level, for each limit at most one in its period; see --log-refusals")
	case "auth_request":
		s.asks = value != "off"
	case "deny":
		s.denies = true
	case "error_page":
		if len(d.words) < 3 {
			return
		}
		if !s.ownPages {
			s.pages, s.ownPages = nil, true
		}
		s.pages = append(slices.Clip(s.pages), d.words)
	case "satisfy":
		s.any = value == "any"
	case "limit_conn":
		f.lose(d.at, "%s: a sub-request ends before its request, so it cannot hold a slot; "+
			"leave limit_conn in nginx, or let the application take a slot (algorithm: concurrency)", strings.Join(d.words, " "))
	}
}
