package config

import (
	"maps"
	"slices"

	"github.com/weirlimit/weir"
)

// Calls say what programs may do with limits that come with their calls. The zero value is
// what holds for a domain without any.
type Calls struct {
	// At is the position of the key calls.
	At Position
	// Forbidden: there are none.
	Forbidden bool
	// MaxKeys is the number of keys that an instance tracks, of each of the Names and of all
	// other limits together; 0: --max-keys.
	MaxKeys        int
	OnStoreFailure StoreFailure
	// RLSAlgorithm is how limits in descriptors count; nil for envoyproxy/ratelimit's window.
	RLSAlgorithm *weir.Algorithm
	// Names are the limits that hold in place of those of programs with the same name, by
	// name.
	Names []NamedLimit
}

// A NamedLimit holds in place of a limit in a call.
type NamedLimit struct {
	// Limit is the limit with its name; without Grouped, that of the call stays.
	Limit RateLimit
	// Trial is a limit on trial beside it; nil for none.
	Trial  *RateLimit
	Shadow bool
}

// MaxCallNameBytes is the length of the longest name of a limit in a call.
const MaxCallNameBytes = 64

// CallNameForm describes the name of a limit in a call.
const CallNameForm = "a name of at most 64 letters, digits and any of _ - . :"

// IsCallName reports whether a limit in a call can have that name. Names that are made for
// limits without one have a slash.
func IsCallName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return name != "" && len(name) <= MaxCallNameBytes
}

// calls reads what programs may do with limits of their own.
func (p *parser) calls(o object) Calls {
	if p.get(o, "calls") == nil {
		return Calls{}
	}
	c := Calls{At: p.position(o.fields["calls"].key)}
	in, ok := p.object(o.fields["calls"].value, inCalls)
	if !ok {
		return c
	}
	c.Forbidden = p.get(in, "allow") != nil && !p.truth(in, "allow")
	c.MaxKeys = p.maxKeys(in)
	if i, ok := p.word(in, "on_store_failure", storeFailures); ok {
		c.OnStoreFailure = StoreFailure(i)
	}
	if i, ok := p.word(in, "rls_algorithm", rlsAlgorithms); ok {
		if algorithm, err := weir.ParseAlgorithm(rlsAlgorithms[i]); err == nil {
			c.RLSAlgorithm = &algorithm
		}
	}
	if p.get(in, "names") == nil {
		return c
	}
	all, ok := p.fields(in.fields["names"].value)
	if !ok {
		return c
	}
	for _, name := range slices.Sorted(maps.Keys(all.fields)) {
		f := all.fields[name]
		if !IsCallName(name) {
			p.report(f.key, quote(name)+" in names", CallNameForm)
			continue
		}
		if n, ok := p.namedLimit(name, f, &c); ok {
			c.Names = append(c.Names, n)
		}
	}
	return c
}

// namedLimit reads what holds for the limits of that name in calls.
func (p *parser) namedLimit(name string, f field, c *Calls) (n NamedLimit, ok bool) {
	o, ok := p.object(f.value, inNamed)
	if !ok {
		return n, false
	}
	n.Shadow = p.truth(o, "shadow_mode")
	if o.has("algorithm") {
		n.Limit = p.limit(o, nil)
	} else {
		p.ownNumbers(o, &n.Limit)
	}
	if !o.has("max_keys") {
		n.Limit.MaxKeys = c.MaxKeys
	}
	if !o.has("on_store_failure") {
		n.Limit.OnStoreFailure = c.OnStoreFailure
	}
	n.Limit.At, n.Limit.Name = p.position(f.key), name
	n.Trial = p.trial(o, &Descriptor{Limits: []RateLimit{n.Limit}})
	return n, true
}

// ownNumbers reads a named limit that leaves its numbers to the calls.
func (p *parser) ownNumbers(o object, l *RateLimit) {
	for _, key := range inNamed.names {
		if o.has(key) && !slices.Contains(besideCalls, key) {
			p.report(o.position(key), key+" without algorithm", "an algorithm beside it: "+oneOf(algorithms()))
		}
	}
	l.MaxKeys = p.maxKeys(o)
	if i, ok := p.word(o, "on_store_failure", storeFailures); ok {
		l.OnStoreFailure = StoreFailure(i)
	}
}
