package convert

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// rulesText writes the rules.
//
// For each value of a key nginx keeps an excess: 0 for the first request, and then
// max(0, excess − rate × time + 1), refused if it is above burst
// (ngx_http_limit_req_lookup). If the first request counts too, the level is at most
// burst + 1: gcra with one more burst, whether or not nginx delays.
func (f *finder) rulesText(domain string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "domain: %s\n", scalar(domain))
	if len(f.rules) > 0 {
		b.WriteString("descriptors:\n")
	}
	for _, r := range f.rules {
		fmt.Fprintf(&b, "  # %s: %s\n", r.use.zone.at, comment(r.use.zone.text))
		fmt.Fprintf(&b, "  # %s: %s\n", r.use.at, comment(r.use.text))
		fmt.Fprintf(&b, "  - key: zone\n    value: %s\n", scalar(r.name))
		pad := "    "
		if entry := r.use.zone.key.entry(); entry != "" {
			fmt.Fprintf(&b, "    descriptors:\n      - key: %s\n", scalar(entry))
			pad = "        "
		}
		if r.dry {
			fmt.Fprintf(&b, "%sshadow_mode: true # limit_req_dry_run\n", pad)
		}
		fmt.Fprintf(&b, "%srate_limit: {algorithm: gcra, requests_per_unit: %d, unit: %s, burst: %d, name: %s}\n",
			pad, r.use.zone.rate, r.use.zone.unit, r.use.burst+1, scalar(r.name))
	}
	return b.Bytes()
}

// checkUses reports where the rules differ from nginx.
func (f *finder) checkUses() {
	var warned []*zone
	for _, r := range f.rules {
		if real := slices.IndexFunc(f.rules, func(other *rule) bool { return other.use.zone == r.use.zone && !other.dry }); r.dry && real >= 0 {
			f.lose(r.use.at, "zone %s is used with and without limit_req_dry_run: nginx counts their requests together, Weir separately", r.use.zone.name)
		}
	}
	for _, u := range f.used() {
		if u.burst > 0 && u.delay != "nodelay" {
			f.lose(u.at, "%s: nginx delays requests above the rate; a sub-request cannot, so they pass at once. "+
				"A program that can wait asks for a leaky_bucket with the same burst", u.text)
		}
		if f.severalBursts(u) && !slices.Contains(warned, u.zone) {
			warned = append(warned, u.zone)
			f.lose(u.at, "zone %s is used with several bursts: nginx counts their requests together, Weir separately", u.zone.name)
		}
	}
}

// entry returns the key of the entry that carries the values of a zone's key, or "" if
// the key is constant.
func (k *key) entry() string {
	names := slices.Clone(k.variables)
	for i, name := range names {
		if name == "remote_addr" {
			names[i] = "remote_address"
		}
	}
	return strings.Join(names, "+")
}

var (
	plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_+.-]*$`)
	words = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

// scalar writes a text as YAML.
func scalar(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, "\ufffd"))
}

// comment returns a text without line breaks and other control characters.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}
