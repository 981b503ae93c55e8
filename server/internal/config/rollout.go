package config

import (
	"fmt"
	"regexp"
	"strconv"
)

// A Part is a part of a whole, in hundredths of a percent: 0 … [Whole].
type Part uint16

// Whole is all of it.
const Whole Part = 10_000

// String returns the part in percent, as rules files have it.
func (p Part) String() string {
	return strconv.FormatFloat(float64(p)/100, 'f', -1, 64) + "%"
}

const partPattern = `^([0-9]{1,2}(\.[0-9]{1,2})?|100(\.0{1,2})?)%$`

var partForm = regexp.MustCompile(partPattern)

// trial reads the limit that is on trial beside those of the descriptor.
func (p *parser) trial(o object, d *Descriptor) *RateLimit {
	if p.get(o, "trial") == nil {
		return nil
	}
	l, ok := p.object(o.fields["trial"].value, inLimit)
	if !ok {
		return nil
	}
	if len(d.Limits) == 0 {
		p.report(o.position("trial"), "trial without rate_limit", "a limit beside it, if only unlimited: true")
	}
	budget := l.has("budget")
	for _, key := range notOnTrial {
		if l.has(key) {
			p.report(l.position(key), key+" in trial", "nothing: a limit on trial refuses nobody, replaces none and shares no budget")
			delete(l.fields, key)
		}
	}
	if !l.has("algorithm") {
		if budget {
			return nil
		}
		p.report(l.node, "a trial without algorithm", "an algorithm: "+oneOf(algorithms()))
		return nil
	}
	limit := p.limit(l, nil)
	return &limit
}

// unenforced reads the part of the keys for which the descriptor's limits never refuse.
func (p *parser) unenforced(o object, d *Descriptor) Part {
	n := p.get(o, "enforce")
	if n == nil {
		return 0
	}
	switch {
	case len(d.Limits) == 0 || !d.Limits[0].Grouped:
		p.report(o.position("enforce"), "enforce without algorithm", "a rate_limit that names an algorithm beside it")
	case d.Shadow:
		p.clash(o, "enforce", o, "shadow_mode", "shadow_mode: true")
	}
	part, ok := p.part(o, "enforce")
	if !ok {
		return 0
	}
	return Whole - part
}

// percent is a number without its sign, as it was most likely meant.
func percent(text string) string {
	if !partForm.MatchString(text + "%") {
		return ""
	}
	return fmt.Sprintf("%s%%", text)
}
