package config

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
)

// The keys of rules files: the reader knows no others, and the JSON Schema and
// the reference in docs/configuration.md are made of them.

// A scope is a kind of map in a rules file.
type scope struct {
	name  string // where its keys stand, for messages
	title string
	doc   string
	keys  []property
	names []string // of the keys
}

// A property is one key of a scope.
type property struct {
	name string
	// doc says what it means; absent, what holds without it.
	doc, absent string
	form        form
	required    bool
	words       []string // what a word can be
	least, most int64    // what a number can be
	of          string   // the title of the scope that an object, or each of a list's, has
	// ours needs an algorithm beside it, of those listed if any are.
	ours       bool
	algorithms []string
}

// A form is what stands behind a key.
type form uint8

const (
	asText form = iota
	asWord
	asTruth
	asNumber
	asPeriod
	asMap    // of a scope
	asMaps   // a list of them
	asTexts  // a list of texts
	asData   // any map
	asPart   // of a whole, in percent
	asNamed  // a map from names to maps of a scope
	asCounts // a map from names to numbers
)

// word returns what a word of the scope can be.
func (s *scope) word(name string) []string {
	return s.keys[slices.Index(s.names, name)].words
}

func newScope(name, title, doc string, keys ...property) *scope {
	s := &scope{name: name, title: title, doc: doc, keys: keys}
	for _, k := range keys {
		s.names = append(s.names, k.name)
	}
	return s
}

// The largest counts: of limits that name no algorithm, of those that do, and of
// a sliding_log, which remembers each of its grants.
const (
	mostCounted = 1<<32 - 1
	mostUnits   = weir.MaxCost
	mostLogged  = 100_000
)

// algorithmDocs says in one sentence what each algorithm does.
func algorithmDocs() string {
	var docs []string
	for _, a := range weir.Algorithms() {
		docs = append(docs, a.String()+" "+a.Doc())
	}
	return strings.Join(docs, "; ")
}

// with returns the names of the algorithms whose traits satisfy f.
func with(f func(weir.Traits) bool) []string {
	var names []string
	for _, a := range weir.Algorithms() {
		if f(a.Traits()) {
			names = append(names, a.String())
		}
	}
	return names
}

var (
	bursting  = with(func(t weir.Traits) bool { return t.Bursts })
	bucketing = with(func(t weir.Traits) bool { return t.Buckets })
	logging   = with(func(t weir.Traits) bool { return t.KeepsLog })
	dated     = with(func(t weir.Traits) bool { return t.Calendars })
	reporting = with(func(t weir.Traits) bool { return t.Reports })
	counting  = with(func(t weir.Traits) bool { return !t.HoldsSlots })
	// leasable are the algorithms whose units can be spent later than charged.
	leasable = with(func(t weir.Traits) bool { return !t.HoldsSlots && !t.Delays })
)

var atTop = newScope("at the top level", "file",
	"One file is one domain. Keys that begin with x- are ignored: they hold anchors.",
	property{name: "domain", required: true, doc: "The name that requests give. Each domain stands in one file."},
	property{name: "budgets", form: asNamed, of: "budget", doc: "Budgets of the whole domain, by name, that several rules charge."},
	property{name: "descriptors", form: asMaps, of: "descriptor", absent: "a known domain without limits", doc: "What the first entry of a request's descriptor is compared with."},
)

var inDescriptor = newScope("in a descriptor", "descriptor",
	"A descriptor is compared with one entry of a request. Of a list the entry's exact key and value are chosen, else the first wildcard that fits, else its key without a value; the choice is final.",
	property{name: "key", required: true, doc: "The key of the entry. Each * stands for any text."},
	property{name: "value", absent: "any value, each with a budget of its own", doc: "The value of the entry. Each * stands for any text. Numbers and booleans are read as the text that stands there."},
	property{name: "rate_limit", form: asMap, of: "rate_limit", absent: "no limit: a value without limits and descriptors is exempt", doc: "The limit of requests that end with this entry."},
	property{name: "rate_limits", form: asMaps, of: "rate_limit", doc: "Several limits, each with an algorithm, that are charged together or not at all. A rate_limit beside them is one more."},
	property{name: "budgets", form: asNamed, of: "budget", doc: "Budgets, by name, that several rules charge: that of this descriptor and those below it. Each combination of the values on the way to this descriptor has budgets of its own. No descriptor above has a budget of the same name."},
	property{name: "shares", form: asMap, of: "shares", doc: "One budget that all values of the key share, with units that are guaranteed to some of them. Stands in place of a value and limits."},
	property{name: "otherwise", form: asMaps, of: "alternative", doc: "What to charge if the limits have no room: the first alternative that fits is charged, and the others are not evaluated. All limits have an algorithm and one on_store_failure, and none has charge_refused or lease. In a Redis Cluster all of them are in the hash slot of the budget that they charge, if they charge one, or the outermost of several."},
	property{name: "descriptors", form: asMaps, of: "descriptor", doc: "What the next entry of the request is compared with."},
	property{name: "hash_tag", form: asTexts, absent: "all of them", doc: "The keys, of this descriptor and those above it, whose values choose the hash slot of a Redis Cluster: one call decides limits with the same hash tag. Needs a limit with an algorithm."},
	property{name: "trial", form: asMap, of: "rate_limit", doc: "A limit on trial beside those in force: decided and charged by itself, told in metrics, and never refuses. It names an algorithm and has no unlimited, replaces, budget, lease or on_store_failure."},
	property{name: "shadow_mode", form: asTruth, doc: "Decide and charge, but never refuse."},
	property{name: "enforce", form: asPart, absent: "100%", doc: "The part of the keys that the limits refuse; for all others they do as with shadow_mode. Whether a key is among them is settled by a hash of its domain and entries, so that it is the same for all instances and at all times, and a larger part has all keys of a smaller one. Needs a limit with an algorithm. Not with shadow_mode."},
	property{name: "quota_mode", form: asTruth, doc: "Envoy's rate limit service refuses a request only if all descriptors with quota_mode that it matches are over their limits. Over HTTP each of them refuses."},
	property{name: "share_threshold", form: asTruth, doc: "All values that the pattern fits share one budget. Needs a * in key or value."},
	property{name: "detailed_metric", form: asTruth, doc: "Metrics have the request's values in their names."},
	property{name: "value_to_metric", form: asTruth, doc: "Metrics have this entry's value in their names."},
	property{name: "metadata", form: asData, doc: "Anything. Answers to Envoy can carry it."},
)

var inLimit = newScope("in rate_limit", "rate_limit",
	"A limit that names an algorithm is Weir's: all such limits of a request are charged together or not at all. One that names none is envoyproxy/ratelimit's: a fixed window, decided by itself, that also counts what it refuses.",
	property{name: "unit", form: asWord, words: unitNames, doc: "The period, in any case of letters. A month has 30 days and a year 365, time_zone aside."},
	property{name: "requests_per_unit", form: asNumber, most: mostCounted, absent: "0", doc: "How many units a period grants in the long run; 0 refuses everything. With concurrency, how many holders there are at a time. A limit with an algorithm needs it and takes at most 1000000000, one of sliding_log 100000, one of fixed_window with charge_refused 4294967295."},
	property{name: "unlimited", form: asTruth, doc: "Grant everything. Takes the place of a unit and an algorithm."},
	property{name: "name", absent: "the path of the descriptor", doc: "What the limit is called in answers, headers and metrics. For a limit with an algorithm it is also part of what its state is kept under, in place of its position."},
	property{name: "replaces", form: asMaps, of: "replaces", doc: "Limits that do not apply to a request that this limit applies to."},
	property{name: "budget", doc: "The name of a budget of this descriptor, one above it, or the domain, which requests charge in place of a limit of their own. It stands alone, or with name, replaces and keep."},
	property{name: "algorithm", form: asWord, words: algorithms(), absent: "envoyproxy/ratelimit's fixed window", doc: "How the limit counts: " + algorithmDocs() + ". docs/algorithms.md compares them."},
	property{name: "period", form: asPeriod, ours: true, doc: "The period where no unit fits: 1ms to 8784h (366 days), in whole milliseconds. With concurrency, how long a place is held at most."},
	property{name: "burst", form: asNumber, least: 1, most: mostUnits, ours: true, algorithms: bursting, absent: "requests_per_unit", doc: "The most that a key can be charged at once: what a gcra lets through at one instant, the capacity of a token_bucket, the queue of a leaky_bucket."},
	property{name: "buckets", form: asNumber, least: 2, most: 3600, ours: true, algorithms: bucketing, absent: "60", doc: "How finely a rolling_window counts: it refuses at most one bucket early."},
	property{name: "anchor", form: asWord, words: anchors, ours: true, algorithms: dated, absent: "epoch", doc: "Where windows begin: aligned to 1970-01-01 00:00 UTC, or with the first charge after the last window."},
	property{name: "time_zone", ours: true, algorithms: dated, doc: "An IANA time zone such as Europe/Paris. Windows become those of its calendar: day, week from Monday, month, year."},
	property{name: "anchor_day", form: asNumber, least: 1, most: 31, ours: true, algorithms: dated, absent: "1", doc: "The day on which calendar months begin, or the last day of a shorter month. Needs time_zone and a unit of month."},
	property{name: "charge_refused", form: asTruth, ours: true, algorithms: counting, doc: "Count what is refused too, for costs that are only known afterwards."},
	property{name: "keep", form: asNumber, least: 1, most: mostUnits - 1, ours: true, absent: "0", doc: "How many units a request leaves to others: it is granted only if that many stay free after it. So classes of different priority share a budget. Less than the burst; needs an algorithm or a budget. Not with lease or charge_refused."},
	property{name: "lease", form: asTruth, ours: true, algorithms: leasable, doc: "Let each instance take a share of the budget ahead and spend it without asking the store; docs/library.md says what that may exceed and refuse too early. Not with charge_refused, keep or otherwise."},
	property{name: "max_keys", form: asNumber, least: 1, most: keylimit.MaxKeys, ours: true, absent: "any number, unless --max-keys says otherwise", doc: "How many keys each instance keeps apart, of those that were asked for lately. Further keys share the budget of one: where clients make keys up, this bounds what the store holds. docs/operations.md says how long a key counts."},
	property{name: "on_store_failure", form: asWord, words: storeFailures, ours: true, absent: "local", doc: "What is answered while the store reaches no decision: grant this instance's share, allow all, deny all, or let the caller have the error. Without an algorithm it is the error, unless --on-store-failure says otherwise."},
)

var inReplaces = newScope("in replaces", "replaces", "Names another descriptor's limit.",
	property{name: "name", required: true, doc: "The name of the limit."},
)

// inBudget has the keys of a limit that say how it counts.
var inBudget = newScope("in a budget", "budget",
	"A budget is a limit that several rules charge, each with a keep of its own. It has the keys of a rate_limit but unlimited, name, replaces, budget and keep, and needs an algorithm.",
	slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool {
		return slices.Contains([]string{"unlimited", "name", "replaces", "budget", "keep"}, k.name)
	})...,
)

var inAlternative = newScope("in otherwise", "alternative", "Limits that are charged together or not at all.",
	property{name: "rate_limit", form: asMap, of: "rate_limit", doc: "The limit of the alternative."},
	property{name: "rate_limits", form: asMaps, of: "rate_limit", doc: "Several limits. A rate_limit beside them is one more."},
)

// inSharing has the keys of a limit that a shared budget can have.
var inSharing = newScope("in shares", "shares",
	"All values of the descriptor's key share one budget, a gcra. A value with a guarantee is never refused so many units, whatever the others use; units that nobody uses are lent to all. docs/sharing.md explains it.",
	append(slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool {
		return !slices.Contains([]string{"requests_per_unit", "unit", "period", "burst", "on_store_failure"}, k.name)
	}),
		property{name: "algorithm", form: asWord, words: []string{"gcra"}, absent: "gcra", doc: "Guarantees need a budget that drains continuously: gcra."},
		property{name: "headroom", form: asNumber, least: 1, most: mostUnits, absent: "a fifth of the burst", doc: "How much of the burst is for guarantees alone. A value can be charged its part of it at one instant: the headroom times its guarantee by requests_per_unit, rounded up. A larger cost has no guarantee."},
		property{name: "guarantee", form: asCounts, required: true, least: 1, most: mostUnits, doc: "How many units per period each value is guaranteed, together at most requests_per_unit. Each name is one value, without * and #. All other values have no guarantee."},
	)...,
)

// notOnTrial are the keys of a rate_limit that mean nothing where it never refuses.
var notOnTrial = []string{"unlimited", "replaces", "budget", "lease", "on_store_failure"}

var scopes = []*scope{atTop, inDescriptor, inLimit, inReplaces, inBudget, inAlternative, inSharing}

// weirKeys are the keys of a rate_limit that mean nothing without an algorithm.
var weirKeys = func() (names []string) {
	for _, k := range inLimit.keys {
		if k.ours {
			names = append(names, k.name)
		}
	}
	return names
}()
