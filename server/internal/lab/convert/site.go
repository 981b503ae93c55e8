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
	// serverAt tells servers with equal names apart.
	serverAt position
	level    level
	uses     []use // its own, else those of the block around it
	own      bool  // the uses are its own
	refusal
	// asks is the auth_request that applies, other than Weir's, and off the site's own
	// "auth_request off".
	asks, off *directive
	askedFor  bool // by a block around it, whose auth_request of Weir it inherits
	release   bool // it keeps its limits in nginx, and turns Weir's auth_request off
	native    bool // nginx limits it
	satisfy   *directive
	// access are the directives that refuse requests before auth_request does, and ownRules
	// reports whether the site has allow or deny of its own.
	access   []*directive
	ownRules bool
	// pages are the error_page directives that apply, and ownPages reports whether they are
	// the site's own.
	pages     []*directive
	ownPages  bool
	recursive bool // recursive_error_pages
	// intercepts passes errors of the application to error_page.
	intercepts []*directive
	// subrequests are directives that make nginx send sub-requests.
	subrequests []*directive
	block       *directive // nil for http
	outsideHTTP bool       // the directives are not for requests
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
	blocks      []site // all servers and locations
	addsHeaders bool   // http or a server has an add_header
	rules       []*rule
	lost        []Loss
	losses      map[Loss]bool
}

// lose notes a loss once.
func (f *finder) lose(at position, format string, args ...any) {
	loss := Loss{at.file, at.line, fmt.Sprintf(format, args...)}
	if !f.losses[loss] {
		f.losses[loss] = true
		f.lost = append(f.lost, loss)
	}
}

// find returns the limits of a configuration.
func find(list []directive) *finder {
	f := &finder{zones: map[string]*zone{}, steady: map[string]bool{}, binary: map[string]*directive{}, losses: map[Loss]bool{}}
	f.declared(list)
	outsideHTTP := slices.ContainsFunc(list, func(d directive) bool { return d.name() == "http" })
	f.walk(list, site{name: "http", refusal: refusal{status: "503"}, outsideHTTP: outsideHTTP})
	f.checkRedirects()
	f.checkSubrequests()
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
		case "stream", "mail":
			continue
		}
		f.declared(d.block)
	}
}

// assigned notes a variable that rewrite directives set: sub-requests share it. No rewrite
// directive sets it again in those to Weir. It reports one that is a binary address.
func (f *finder) assigned(d *directive) {
	if len(d.words) != 3 {
		return
	}
	f.steady[strings.TrimPrefix(d.words[1], "$")] = true
	if f.isBinary(d.words[2]) {
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
		inner.at, inner.block = d.at, d
		inner.own, inner.off, inner.release, inner.ownPages, inner.ownRules, inner.outsideHTTP = false, nil, false, false, false, false
		switch d.name() {
		case "http":
		case "server":
			inner.level, inner.server, inner.serverAt = inServer, "server "+serverName(d.block), d.at
			inner.name = inner.server
		case "location":
			inner.level, inner.name = inLocation, strings.Join(d.words, " ")
			if s.server != "" {
				inner.name += " of " + s.server
			}
		case "stream", "mail":
			continue
		default:
			f.misplaced(d, d.block)
			continue
		}
		f.walk(d.block, inner)
	}
}

// misplaced reports limits in blocks that cannot have them, such as if.
func (f *finder) misplaced(in *directive, list []directive) {
	each(list, func(d *directive) {
		if d.name() == "limit_req" {
			f.lose(d.at, "%s is inside %s: nginx allows it in http, server and location only", strings.Join(d.words, " "), strings.Join(in.words, " "))
		}
	})
}

// each calls do for the directives of a list and of all blocks in it.
func each(list []directive, do func(d *directive)) {
	for i := range list {
		do(&list[i])
		each(list[i].block, do)
	}
}

// keep adds a site that has to ask. Servers and locations ask for the locations inside
// them. http never asks, because a location cannot stand there.
func (f *finder) keep(s *site, around refusal) {
	if s.level == inHTTP {
		return
	}
	if len(s.uses) > 0 {
		inherited := s.askedFor
		switch why := s.obstacle(); {
		case s.native && !s.own: // as the block around it
		case why == "":
			s.native = false
			f.checkSite(s)
			s.askedFor = true
			if s.own || s.level == inServer || s.refusal != around || s.ownPages || s.off != nil || !inherited || f.copies(s.uses) {
				f.sites = append(f.sites, *s)
			}
		default:
			f.lose(s.at, "%s %s; keep its limit_req in nginx, which counts apart from Weir", s.name, why)
			s.askedFor = false
			if inherited || !s.own {
				s.release = true
				f.sites = append(f.sites, *s)
			}
			s.native = true
		}
	}
	f.blocks = append(f.blocks, *s)
}

// obstacle says why a site cannot ask Weir; empty if it can.
func (s *site) obstacle() string {
	switch {
	case s.asks != nil:
		return fmt.Sprintf("has the auth_request of %s, and nginx asks only one", s.asks.at)
	case s.satisfy != nil:
		return fmt.Sprintf("has satisfy any (%s), so a grant of Weir would admit requests that allow, deny and auth_basic refuse", s.satisfy.at)
	}
	return ""
}

// pagesOf returns the error_page directives for a status.
func (s *site) pagesOf(status string) []*directive {
	var all []*directive
	for _, page := range s.pages {
		if slices.Contains(page.words[1:len(page.words)-1], status) {
			all = append(all, page)
		}
	}
	return all
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
	if !s.outsideHTTP && d.block == nil && !known(d.name()) {
		s.access = append(slices.Clip(s.access), d)
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
		if s.asks, s.off = d, nil; value == "off" {
			s.asks, s.off = nil, d
		}
		s.subrequests = append(slices.Clip(s.subrequests), d)
	case "allow", "deny":
		if !s.ownRules {
			s.access, s.ownRules = without(s.access, "deny"), true
		}
		if d.name() == "deny" {
			s.access = append(slices.Clip(s.access), d)
		}
	case "auth_basic":
		if s.access = without(s.access, "auth_basic"); value != "off" {
			s.access = append(s.access, d)
		}
	case "limit_except":
		s.access = append(slices.Clip(s.access), d)
	case "mirror", "add_before_body", "add_after_body", "ssi":
		s.subrequests = append(slices.Clip(s.subrequests), d)
	case "add_header":
		f.addsHeaders = f.addsHeaders || s.level < inLocation
	case "recursive_error_pages":
		s.recursive = value == "on"
	case "proxy_intercept_errors", "fastcgi_intercept_errors", "uwsgi_intercept_errors", "scgi_intercept_errors", "grpc_intercept_errors":
		if s.intercepts = without(s.intercepts, d.name()); value == "on" {
			s.intercepts = append(s.intercepts, d)
		}
	case "error_page":
		if len(d.words) < 3 {
			return
		}
		if !s.ownPages {
			s.pages, s.ownPages = nil, true
		}
		s.pages = append(slices.Clip(s.pages), d)
	case "satisfy":
		if s.satisfy = nil; value == "any" {
			s.satisfy = d
		}
	case "limit_conn":
		f.lose(d.at, "%s: a sub-request ends before its request, so it cannot hold a slot; "+
			"leave limit_conn in nginx, or let the application take a slot (algorithm: concurrency)", strings.Join(d.words, " "))
	}
}

// without returns the directives that have another name.
func without(list []*directive, name string) []*directive {
	return slices.DeleteFunc(slices.Clone(list), func(d *directive) bool { return d.name() == name })
}
