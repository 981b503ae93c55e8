package convert

import (
	"regexp"
	"slices"
	"strings"
)

// checkSite reports the directives of a limited site that make nginx answer otherwise than
// with limit_req.
func (f *finder) checkSite(s *site) {
	for _, d := range s.access {
		text := strings.Join(d.words, " ")
		switch d.name() {
		case "deny", "auth_basic", "limit_except":
			f.lose(d.at, "%s: nginx refuses such requests before it asks Weir, so they are not counted", text)
		default:
			f.lose(d.at, "%s is not of nginx itself: if it refuses requests before auth_request does, they are not counted; if it acts on sub-requests, exempt /_weir/", text)
		}
	}
	if s.status != refusedStatus && len(s.pagesOf(s.status)) > 0 {
		for _, d := range f.unauthorized(s) {
			f.lose(d.at, "%s: its 401 gets the error_page of refused requests", strings.Join(d.words, " "))
		}
	}
	if pages := s.pagesOf(refusedStatus); s.ownPages && s.status != refusedStatus && len(pages) > 0 {
		f.lose(pages[0].at, "%s: Weir's refusals are 401 within nginx, and in %s they get this page; take 401 out", strings.Join(pages[0].words, " "), s.name)
	}
	if s.level != inLocation {
		return
	}
	each(s.block.block, func(d *directive) {
		switch {
		case d.name() == "location": // has a check of its own
		case d.name() == "if" && slices.ContainsFunc(d.block, func(d directive) bool { return d.name() == "error_page" }):
			f.lose(d.at, "%s: the error_page inside it hides the one that answers refused requests in %s", strings.Join(d.words, " "), s.name)
		case f.copies(s.uses) && (d.name() == "break" || d.name() == "rewrite" && d.words[len(d.words)-1] == "break"):
			f.lose(d.at, "%s: ends the rewrite directives before %s has read the key $%s", strings.Join(d.words, " "), s.name, strings.Join(f.unsteady(&s.uses[0]), ", $"))
		}
	})
}

// refusedStatus is the status of refused sub-requests. nginx has no other but 403, which
// locations more often have for other reasons.
const refusedStatus = "401"

// unauthorized returns the directives by which a site's requests can get a 401 that is not
// Weir's.
func (f *finder) unauthorized(s *site) []*directive {
	all := slices.Clone(s.intercepts)
	if s.level != inLocation {
		return all
	}
	each(s.block.block, func(d *directive) {
		last := d.words[len(d.words)-1]
		if d.name() == "return" && len(d.words) == 2 && last == refusedStatus || d.name() == "try_files" && last == "="+refusedStatus {
			all = append(all, d)
		}
	})
	return all
}

// checkRedirects reports each error_page that sends a request to a location where it is
// counted for the first time: nginx follows no second error_page, so a refusal there stays
// a 401.
func (f *finder) checkRedirects() {
	for i := range f.blocks {
		b := &f.blocks[i]
		if b.recursive {
			continue
		}
		for _, page := range b.pages {
			target := page.words[len(page.words)-1]
			if !strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "@") || !f.uncounted(b, page) {
				continue
			}
			for _, to := range f.locate(b, target) {
				if len(to.uses) > 0 && to.askedFor {
					f.lose(page.at, "%s: a request that was not counted before is counted in %s; if Weir refuses it there, its answer is 401", strings.Join(page.words, " "), to.name)
				}
			}
		}
	}
}

// rejected are the statuses with which nginx rejects requests before it finds their location.
var rejected = []string{"400", "408", "413", "414", "494", "495", "496", "497"}

// uncounted reports whether requests in a block can get a status of an error_page before
// they are counted.
func (f *finder) uncounted(b *site, page *directive) bool {
	if b.level == inLocation && len(b.uses) == 0 {
		return true
	}
	codes := slices.Clone(rejected)
	if b.block != nil {
		// A server's own return answers again after the redirect, except to a named location.
		again := b.level == inServer && strings.HasPrefix(page.words[len(page.words)-1], "/")
		codes = append(codes, f.returned(b.block.block, again)...)
	}
	return slices.ContainsFunc(page.words[1:len(page.words)-1], func(code string) bool { return slices.Contains(codes, code) })
}

// returned returns the statuses that a block's rewrite directives answer with, but not
// those that they answer with again, after a redirect.
func (f *finder) returned(list []directive, again bool) []string {
	var codes []string
	for i := range list {
		d := &list[i]
		switch d.name() {
		case "return":
			if !again && len(d.words) == 2 {
				codes = append(codes, d.words[1])
			}
		case "if":
			changes := slices.ContainsFunc(newKey(strings.Join(d.words, " ")).variables, func(v string) bool { return !f.isSteady(v) })
			codes = append(codes, f.returned(d.block, again && !changes)...)
		case "internal":
			codes = append(codes, "404")
		}
	}
	return codes
}

// checkSubrequests reports sub-requests to limited locations. limit_req counts them, unless
// their main request was counted, but auth_request ignores them.
func (f *finder) checkSubrequests() {
	for i := range f.blocks {
		b := &f.blocks[i]
		if len(b.uses) > 0 {
			continue
		}
		for _, d := range b.subrequests {
			if len(d.words) < 2 || d.words[1] == "off" {
				continue
			}
			targets := f.locate(b, d.words[1])
			if d.name() == "ssi" {
				targets = f.ofServer(b)
			}
			for _, to := range targets {
				if len(to.uses) > 0 {
					f.lose(d.at, "%s: nginx counts its sub-requests in %s; they do not ask Weir", strings.Join(d.words, " "), to.name)
				}
			}
		}
	}
}

// ofServer returns the server of a block, and its locations.
func (f *finder) ofServer(b *site) []*site {
	var all []*site
	for i := range f.blocks {
		if f.blocks[i].serverAt == b.serverAt {
			all = append(all, &f.blocks[i])
		}
	}
	return all
}

// locate returns the blocks in the server of a block that can have the requests for a path,
// or for a named location. Expressions that Go does not understand may match any path.
func (f *finder) locate(b *site, target string) []*site {
	path, _, _ := strings.Cut(target, "?")
	var found, prefix, server *site
	var patterns []*site
	for _, s := range f.ofServer(b) {
		operator, text := s.match()
		switch {
		case s.level == inServer:
			server = s
		case operator == "=" || operator == "@":
			if text == path {
				found = s
			}
		case operator == "~" || operator == "~*":
			if matches(operator, text, path) {
				patterns = append(patterns, s)
			}
		case strings.HasPrefix(path, text):
			if prefix == nil || len(text) > len(prefix.text()) {
				prefix = s
			}
		}
	}
	if found != nil {
		return []*site{found}
	}
	if strings.HasPrefix(path, "@") {
		return nil
	}
	if prefix == nil {
		prefix = server
	}
	if prefix == nil {
		return patterns
	}
	if operator, _ := prefix.match(); operator == "^~" {
		return []*site{prefix}
	}
	return append(patterns, prefix)
}

func matches(operator, expression, path string) bool {
	if operator == "~*" {
		expression = "(?i)" + expression
	}
	compiled, err := regexp.Compile(expression)
	return err != nil || compiled.MatchString(path)
}

// match returns the operator of a location, or "@" if it is a named one, and its text.
func (s *site) match() (operator, text string) {
	switch {
	case s.level != inLocation || len(s.block.words) < 2:
		return "", ""
	case len(s.block.words) > 2:
		return s.block.words[1], s.block.words[2]
	case strings.HasPrefix(s.block.words[1], "@"):
		return "@", s.block.words[1]
	}
	text = s.block.words[1]
	for _, operator := range []string{"=", "^~", "~*", "~"} { // without a space
		if rest, found := strings.CutPrefix(text, operator); found {
			return operator, rest
		}
	}
	return "", text
}

func (s *site) text() string {
	_, text := s.match()
	return text
}
