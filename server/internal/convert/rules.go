package convert

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rulesText writes the rules that the questions are answered by.
//
// nginx keeps an excess for each value of a key: 0 for the first request, and
// then max(0, excess − rate × time) + 1 less the 1 of the first, refused where it
// is above burst (ngx_http_limit_req_lookup). Counting the first request too,
// that is a level of at most burst + 1: gcra with one burst more, delayed or not.
func rulesText(domain string, f *finder, questions []*question) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "domain: %s\n", scalar(domain))
	if len(questions) == 0 {
		return b.Bytes()
	}
	f.checkUses()
	b.WriteString("descriptors:\n")
	for _, q := range questions {
		q.rule(&b)
	}
	return b.Bytes()
}

// checkUses tells what gcra does otherwise than nginx.
func (f *finder) checkUses() {
	told := map[*zone]bool{}
	for _, u := range f.used() {
		if u.burst > 0 && u.delay != "nodelay" {
			f.lose(u.at, "%s: nginx delays what comes faster than the rate; nobody waits in a sub-request, so that "+
				"the same requests pass without a delay. A program that can wait asks a leaky_bucket with the same burst", u.text)
		}
		if f.bursts(u.zone) > 1 && !told[u.zone] {
			told[u.zone] = true
			f.lose(u.at, "zone %s is used with several bursts: nginx counts them together, Weir each by itself", u.zone.name)
		}
		if len(f.combined(u.zone)) > 1 && !told[u.zone] {
			told[u.zone] = true
			f.lose(u.at, "zone %s is used alone and beside other zones: nginx counts both together, Weir each by itself", u.zone.name)
		}
	}
}

// combined returns with which zones beside it, in which order, a zone is used.
func (f *finder) combined(z *zone) []string {
	var all []string
	for _, s := range f.sites {
		names := ""
		mine := false
		for _, u := range s.uses {
			if slices.Equal(u.zone.key.variables, z.key.variables) {
				names += "+" + u.zone.name
				mine = mine || u.zone == z
			}
		}
		if mine && !slices.Contains(all, names) {
			all = append(all, names)
		}
	}
	return all
}

func (q *question) rule(b *bytes.Buffer) {
	for _, u := range q.uses {
		fmt.Fprintf(b, "  # %s: %s\n", u.zone.at, comment(u.zone.text))
		fmt.Fprintf(b, "  # %s: %s\n", u.at, comment(u.text))
	}
	fmt.Fprintf(b, "  - key: zone\n    value: %s\n", scalar(q.name))
	pad := "    "
	for _, v := range q.key.variables {
		fmt.Fprintf(b, "%sdescriptors:\n%s  - key: %s\n", pad, pad, scalar(entryKey(v)))
		pad += "    "
	}
	if q.dry {
		fmt.Fprintf(b, "%sshadow_mode: true # limit_req_dry_run\n", pad)
	}
	if len(q.uses) == 1 {
		fmt.Fprintf(b, "%srate_limit: %s\n", pad, q.uses[0].limit())
		return
	}
	fmt.Fprintf(b, "%srate_limits:\n", pad)
	for _, u := range q.uses {
		fmt.Fprintf(b, "%s  - %s\n", pad, u.limit())
	}
}

// limit is the limit of a use.
func (u *use) limit() string {
	return fmt.Sprintf("{algorithm: gcra, requests_per_unit: %d, unit: %s, burst: %d, name: %s}",
		u.zone.rate, u.zone.unit, u.burst+1, scalar(u.zone.name))
}

// entryKey names the entry that carries a variable.
func entryKey(variable string) string {
	if variable == "remote_addr" {
		return "remote_address"
	}
	return variable
}

var (
	plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_+.-]*$`)
	words = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

// scalar is a text as YAML has it.
func scalar(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, "\ufffd"))
}

// comment is a text that ends with its line.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}
