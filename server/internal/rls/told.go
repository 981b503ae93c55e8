package rls

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// headers tells the limit with the least remaining, the first of them; if
// descriptors are over that refuse by themselves, the last of those.
func (j *judgement) headers(names *HeaderNames) []Header {
	var speaker *Status
	refused := false
	for i := range j.Statuses {
		s := &j.Statuses[i]
		switch {
		case s.Limit == nil:
		case s.Over && j.quota[i] == always:
			speaker, refused = s, true
		case !refused && (speaker == nil || s.Remaining < speaker.Remaining):
			speaker = s
		}
	}
	if speaker == nil {
		return nil
	}
	return []Header{
		{names.Limit, strconv.FormatUint(uint64(speaker.Limit.Requests), 10)},
		{names.Remaining, strconv.FormatUint(uint64(speaker.Remaining), 10)},
		{names.Reset, strconv.FormatInt(int64(speaker.Reset/time.Second), 10)},
	}
}

// metadata tells the request, and what the rules say that let it pass.
func (j *judgement) metadata(req *Request) map[string]any {
	descriptors := make([]any, len(req.Descriptors))
	for i := range req.Descriptors {
		descriptors[i] = describe(&req.Descriptors[i])
	}
	told := map[string]any{"domain": req.Domain, "descriptors": descriptors}
	if req.HitsAddend > 0 {
		told["hitsAddend"] = int64(req.HitsAddend)
	}
	merged := map[string]any{}
	for i, r := range j.rules {
		if r != nil && !j.Statuses[i].Over {
			merge(merged, r.Metadata)
		}
	}
	if len(merged) > 0 {
		told["metadata"] = merged
	}
	return told
}

func describe(d *Descriptor) map[string]any {
	entries := make([]any, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = e.Key + "=" + e.Value
	}
	told := map[string]any{"entries": entries}
	if l := d.Limit; l != nil {
		text := fmt.Sprintf("requests_per_unit:%d unit:%s", l.Requests, strings.ToUpper(unitNames[l.Unit]))
		if l.Multiplier != 1 {
			text += fmt.Sprintf(" unit_multiplier:{value:%d}", l.Multiplier)
		}
		told["limit"] = text
	}
	if d.HitsAddend != nil {
		told["hitsAddend"] = *d.HitsAddend
	}
	return told
}

// merge adds what is not there yet. The rules' own maps are never written to.
func merge(to, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		known, taken := to[key]
		switch knownMap, both := known.(map[string]any); {
		case taken && isMap && both:
			knownMap = maps.Clone(knownMap)
			merge(knownMap, inner)
			to[key] = knownMap
		case !taken:
			to[key] = value
		}
	}
}
