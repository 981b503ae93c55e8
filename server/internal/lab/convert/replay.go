package convert

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/lab/accesslog"
)

// A Replay says how weir replay decides the requests of an access log by one of the rules.
type Replay struct {
	// Zone is the value of the rule's entry zone.
	Zone string
	// Pattern is an expression of grep -P for the lines of the rule's requests in the
	// combined format. It is empty if all requests are.
	Pattern string
	// Descriptor is a value of --descriptor. It is empty if logs do not have the key.
	Descriptor string
	// Key is the key of the zone, as nginx has it.
	Key string
}

// replays returns how to replay the rules.
func (f *finder) replays(domain string) []Replay {
	var all []Replay
	for _, r := range f.rules {
		key := &r.use.zone.key
		replay := Replay{Zone: r.name, Key: key.text, Pattern: f.pattern(r)}
		descriptor := requestText(domain) + " zone=" + requestText(r.name)
		name := strings.NewReplacer("$", "", "{", "", "}", "", "binary_", "").Replace(key.text)
		switch {
		case key.entry() == "":
			replay.Descriptor = descriptor
		case slices.Equal(key.variables, []string{name}) && accesslog.KnownField(name):
			replay.Descriptor = descriptor + "," + key.entry() + "=$" + name
		}
		all = append(all, replay)
	}
	return all
}

// requestText escapes a text for a request on the command line.
func requestText(text string) string {
	return strings.NewReplacer(`\`, `\\`, " ", `\ `, ",", `\,`, ";", `\;`).Replace(text)
}

// pattern returns the expression for the lines of a rule's requests.
func (f *finder) pattern(r *rule) string {
	limited := func(s *site) bool {
		return s.askedFor && slices.ContainsFunc(s.uses, func(u use) bool { return f.ruleOf(u, s.dryRun) == r })
	}
	var all []string
	for i := range f.blocks {
		b := &f.blocks[i]
		operator, _ := b.match()
		if !limited(b) || operator == "@" {
			continue
		}
		var others []string
		earlier := true
		for _, other := range f.ofServer(b) {
			if other == b {
				earlier = false
			} else if !limited(other) && other.before(b, earlier) {
				others = append(others, other.expression())
			}
		}
		text := b.expression()
		if len(others) > 0 {
			text = "(?!" + strings.Join(others, "|") + ")" + text
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if slices.Contains(all, "/") {
		return ""
	}
	return `"[A-Z]+ (?:` + strings.Join(all, "|") + ")"
}

// before reports whether nginx prefers a location to another one, or to the server, for
// requests that match both. Of expressions it prefers the earlier one.
func (s *site) before(other *site, earlier bool) bool {
	mine, text := s.match()
	theirs, shorter := other.match()
	pattern := theirs == "~" || theirs == "~*"
	switch {
	case mine == "@" || s.level != inLocation || theirs == "=":
		return false
	case mine == "~" || mine == "~*":
		return pattern && earlier || !pattern && theirs != "^~"
	case pattern:
		return mine == "=" || mine == "^~"
	}
	return (mine == "=" || text != shorter) && strings.HasPrefix(text, shorter)
}

// expression matches the path of a block's requests in a line of a log.
func (s *site) expression() string {
	const end = "(?=[ ?])"
	operator, text := s.match()
	switch {
	case s.level != inLocation:
		return "/"
	case operator == "=":
		return regexp.QuoteMeta(text) + end
	case operator != "~" && operator != "~*":
		return regexp.QuoteMeta(text)
	}
	if rest, found := strings.CutSuffix(text, "$"); found && !strings.HasSuffix(rest, `\`) {
		text = "(?:" + rest + ")" + end
	}
	if rest, found := strings.CutPrefix(text, "(?:^"); found {
		text = "(?:" + rest
	} else if rest, found := strings.CutPrefix(text, "^"); found {
		text = rest
	} else {
		text = "[^ ?]*?" + text
	}
	if operator == "~*" {
		text = "(?i:" + text + ")"
	}
	return text
}
