package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A site is a block that limits apply to: http, a server or a location.
type site struct {
	at     place
	name   string // "location /login of server example.org"
	server string
	level  level
	uses   []use // its own, else those of the block around it
	own    bool  // the uses are its own
	refusal
	asks bool // has an auth_request of its own
	any  bool // one of several checks is enough
}

// A refusal is what is made of a refused request.
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
	// steady are the variables that are the same for a request and for the
	// sub-requests that it makes, wherever they are read.
	steady map[string]bool
	sites  []site
	lost   []Loss
}

func (f *finder) lose(at place, format string, args ...any) {
	f.lost = append(f.lost, Loss{at.file, at.line, fmt.Sprintf(format, args...)})
}

// find returns what a configuration limits.
func find(list []directive) *finder {
	f := &finder{zones: map[string]*zone{}, steady: map[string]bool{}}
	f.declared(list)
	f.walk(list, site{name: "http", refusal: refusal{status: "503"}})
	return f
}

// declared reads the zones and the variables that are computed, which may stand
// behind their uses.
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
		}
		f.declared(d.block)
	}
}

// computed notes a variable that is made of steady ones only.
func (f *finder) computed(d *directive) {
	sources := d.words[1:max(1, len(d.words)-1)]
	if len(d.words) < 2 {
		return
	}
	for i := range d.block {
		sources = slices.Concat(sources, d.block[i].words)
	}
	for _, v := range newKey(strings.Join(sources, " ")).variables {
		if !f.isSteady(v) {
			return
		}
	}
	f.steady[strings.TrimPrefix(d.words[len(d.words)-1], "$")] = true
}

var (
	steadyNames = []string{
		"remote_addr", "remote_port", "remote_user", "realip_remote_addr", "proxy_protocol_addr",
		"server_name", "server_addr", "server_port", "host", "hostname", "scheme", "https", "request_uri", "connection", "server_protocol",
	}
	steadyPrefixes = []string{"http_", "cookie_", "ssl_", "geoip_", "geoip2_"}
)

func (f *finder) isSteady(variable string) bool {
	return f.steady[variable] || slices.Contains(steadyNames, variable) ||
		slices.ContainsFunc(steadyPrefixes, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
}

// walk reads a block whose settings begin as those of the block around it.
func (f *finder) walk(list []directive, s site) {
	around := s.refusal
	for i := range list {
		f.setting(&list[i], &s)
	}
	f.keep(&s, around)
	for i := range list {
		d, inner := &list[i], s
		inner.at, inner.own, inner.asks = d.at, false, false
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

// keep keeps a site that has to ask. Those in a server or a location that ask do
// so for the locations in them, and http has none: what stands beside a question
// cannot stand there.
func (f *finder) keep(s *site, around refusal) {
	if len(s.uses) == 0 || s.level == inHTTP {
		return
	}
	if s.asks {
		f.lose(s.at, "%s has an auth_request of its own, and nginx asks only one", s.name)
	}
	if s.any {
		f.lose(s.at, "%s has satisfy any: what another check lets in passes, whatever Weir says", s.name)
	}
	if s.own || s.level == inServer || s.refusal != around {
		f.sites = append(f.sites, *s)
	}
}

func serverName(block []directive) string {
	for i := range block {
		if block[i].name() == "server_name" && len(block[i].words) > 1 {
			return block[i].words[1]
		}
	}
	for i := range block {
		if block[i].name() == "listen" && len(block[i].words) > 1 {
			return block[i].words[1]
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
		f.lose(d.at, "limit_req_log_level: Weir logs no refusals; its answers and its metrics tell them")
	case "auth_request":
		s.asks = value != "off"
	case "satisfy":
		s.any = value == "any"
	case "limit_conn":
		f.lose(d.at, "%s: a sub-request ends before the request that it is for, so that nobody would give the place back; "+
			"leave it to nginx, or let the program behind it take a place (algorithm: concurrency)", strings.Join(d.words, " "))
	}
}
