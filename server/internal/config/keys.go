package config

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
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
	// doc is the meaning of the key; absent is the effect of leaving it out.
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

// A form is the type of a key's value.
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
	asDollars
	asPercents // a list of whole percents
)

func newScope(name, title, doc string, keys ...property) *scope {
	s := &scope{name: name, title: title, doc: doc, keys: keys}
	for _, k := range keys {
		s.names = append(s.names, k.name)
	}
	return s
}

// The largest counts: of a fixed_window, of limits without an algorithm, of other limits, and
// of a sliding_log, which stores each of its grants.
const (
	mostWindow  = algo.MaxWindow
	mostCounted = 1<<32 - 1
	mostUnits   = weir.MaxCost
	mostLogged  = 100_000
)

// algorithmDocs returns one sentence about each algorithm.
func algorithmDocs() string {
	var docs []string
	for i := range algo.Steps {
		docs = append(docs, algo.Steps[i].Name+" "+algo.Steps[i].Doc)
	}
	return strings.Join(docs, "; ")
}

// with returns the names of the algorithms whose traits satisfy f.
func with(f func(algo.Traits) bool) []string {
	var names []string
	for i := range algo.Steps {
		if f(algo.Steps[i].Traits) {
			names = append(names, algo.Steps[i].Name)
		}
	}
	return names
}

var (
	bursting  = with(func(t algo.Traits) bool { return t.Bursts })
	bucketing = with(func(t algo.Traits) bool { return t.Buckets })
	logging   = with(func(t algo.Traits) bool { return t.KeepsLog })
	dated     = with(func(t algo.Traits) bool { return t.Calendars })
	alerting  = with(func(t algo.Traits) bool { return t.Calendars })
	reporting = with(func(t algo.Traits) bool { return t.Reports })
	counting  = with(func(t algo.Traits) bool { return !t.HoldsSlots })
	shareable = []string{weir.GCRA.String()}
	// rlsAlgorithms take any count and unit that Envoy may send, up to the largest count, and no further number.
	rlsAlgorithms = []string{weir.GCRA.String(), weir.RollingWindow.String(), weir.TokenBucket.String(), weir.SlidingCounter.String()}
	// leasable are the algorithms whose units can be spent later than charged.
	leasable = with(func(t algo.Traits) bool { return !t.HoldsSlots && !t.Delays })
)

var atTop = newScope("at the top level", "file",
	"One file is one domain. Keys that begin with x- are ignored: they hold anchors.",
	property{name: "domain", required: true, doc: "The name of the domain, which requests give. Each domain is in one file."},
	property{name: "budgets", form: asNamed, of: "budget", doc: "Budgets of the whole domain, by name. Several rules can charge each of them."},
	property{name: "models", form: asMaps, of: "model", doc: "The prices of language models, for limits with count: usd. The first row that matches the requested model counts. docs/models.md explains it."},
	property{name: "prices", doc: "The path of a price file, from the folder of this file, in place of models. It is read again when it changes. docs/models.md explains it."},
	property{name: "classes", form: asTexts, doc: "The classes of the label class, the highest first, such as [interactive, batch]. With them, the header Weir-Class of a request to weir models lowers its class, and callers without a class have the first one. docs/models.md explains it."},
	property{name: "calls", form: asMap, of: "calls", doc: "What programs may do with limits of their own, which come with their calls. docs/http.md and docs/resp.md show them."},
	property{name: "descriptors", form: asMaps, of: "descriptor", absent: "a known domain without limits", doc: "The rules for the first entry of a request's descriptor."},
)

var inDescriptor = newScope("in a descriptor", "descriptor",
	"A descriptor is compared with one entry of a request. In a list, the descriptor with the entry's exact key and value is chosen, else the first wildcard that matches, else the one with the key and no value. The choice is final.",
	property{name: "key", required: true, doc: "The key of the entry. Each * stands for any text."},
	property{name: "value", absent: "any value, each with a budget of its own", doc: "The value of the entry. Each * stands for any text. Numbers and booleans are read as text, as they are written."},
	property{name: "rate_limit", form: asMap, of: "rate_limit", absent: "no limit: a value without limits and descriptors is exempt", doc: "The limit of requests whose last entry matches this descriptor."},
	property{name: "rate_limits", form: asMaps, of: "rate_limit", doc: "Several limits, each with an algorithm, that are charged together or not at all. A rate_limit beside them is one more."},
	property{name: "budgets", form: asNamed, of: "budget", doc: "Budgets, by name, for the rules of this descriptor and of those below it. Each combination of values on the path to this descriptor has its own budgets. A descriptor above must not have a budget of the same name."},
	property{name: "shares", form: asMap, of: "shares", doc: "One budget that all values of the key share, with units that are guaranteed to some of them. It replaces value and limits."},
	property{name: "otherwise", form: asMaps, of: "alternative", doc: "Limits to charge if the limits above have no room: the first alternative that fits is charged, and the others are not evaluated. All limits need an algorithm and the same on_store_failure, and none may have charge_refused or lease. In a Redis Cluster all of them are in the hash slot of the budget that they charge, or of the outermost one if they charge several."},
	property{name: "descriptors", form: asMaps, of: "descriptor", doc: "The rules for the next entry of the request."},
	property{name: "hash_tag", form: asTexts, absent: "all of them", doc: "The keys, of this descriptor and those above it, whose values choose the hash slot of a Redis Cluster: one call decides limits with the same hash tag. Needs a limit with an algorithm."},
	property{name: "trial", form: asMap, of: "rate_limit", doc: "A limit on trial beside those in force: decided and charged separately and counted in metrics, it never refuses. It needs an algorithm and must not have unlimited, replaces, budget, lease, quota, on_store_failure, was, show, alert, instead or at."},
	property{name: "shadow_mode", form: asTruth, doc: "Decide and charge, but never refuse."},
	property{name: "enforce", form: asPart, absent: "100%", doc: "The part of the keys for which the limits refuse; for all other keys they only watch, as with shadow_mode. A hash of a key's domain and entries decides, so the part is the same on all instances and at all times, and a larger part includes the keys of a smaller one. Needs a limit with an algorithm. Not with shadow_mode."},
	property{name: "quota_mode", form: asTruth, doc: "Envoy's rate limit service refuses a request only if all descriptors with quota_mode that it matches are over their limits. Over HTTP each of them refuses."},
	property{name: "share_threshold", form: asTruth, doc: "All values that match the pattern share one budget. Needs a * in key or value."},
	property{name: "detailed_metric", form: asTruth, doc: "Metrics have the request's values in their names."},
	property{name: "value_to_metric", form: asTruth, doc: "Metrics have this entry's value in their names."},
	property{name: "estimate", form: asWord, words: estimates, absent: "guess", doc: "How weir models estimates the tokens of a request before it forwards it: guess holds a quarter of the body's bytes and output_guess; strict holds the most that the request can use. Of all rules that match, the strictest counts. Needs a limit with an algorithm."},
	property{name: "output_guess", form: asNumber, least: 1, most: mostUnits, absent: "1024", doc: "The output tokens that a guess holds for each answer, or the request's own bound if that is less. Of all rules that match, the largest counts. Needs a limit with an algorithm."},
	property{name: "metadata", form: asData, doc: "Any data. Answers to Envoy can contain it."},
)

var inLimit = newScope("in rate_limit", "rate_limit",
	"A limit that names an algorithm is Weir's: all such limits of a request are charged together or not at all. One that names none is envoyproxy/ratelimit's: a fixed window, decided separately, that also counts refused requests.",
	property{name: "unit", form: asWord, words: unitNames, doc: "The period, in upper or lower case. Without time_zone, a month has 30 days and a year 365."},
	property{name: "requests_per_unit", form: asNumber, most: mostWindow, absent: "0", doc: "The number of units that a period grants in the long run; 0 refuses everything. With concurrency, the number of holders at a time. A limit with an algorithm needs it, or dollars. The maximum is 4294967295 without an algorithm and with charge_refused, 100000 for sliding_log, 999999999999999 for fixed_window, and 1000000000 for the others."},
	property{name: "unlimited", form: asTruth, doc: "Grant everything. It replaces unit and algorithm."},
	property{name: "name", absent: "the path of the descriptor", doc: "The name of the limit in answers, headers and metrics. For a limit with an algorithm it is also part of the key in the store, in place of the limit's position."},
	property{name: "replaces", form: asMaps, of: "replaces", doc: "Limits that do not apply to a request that this limit applies to."},
	property{name: "budget", doc: "The name of a budget of this descriptor, of one above it, or of the domain. Requests charge it in place of a limit of their own. It may only be combined with name, replaces, show, and keep or keep_dollars."},
	property{name: "algorithm", form: asWord, words: algorithms(), absent: "envoyproxy/ratelimit's fixed window", doc: "How the limit counts: " + algorithmDocs() + ". docs/algorithms.md compares them."},
	property{name: "count", form: asWord, words: Meters(), ours: true, absent: "requests", doc: "What the limit counts: requests, or the input, cached, output or all tokens of language models, or usd, dollars. weir models knows the numbers of its requests; other programs give them to POST /v1/take as costs. docs/models.md defines them."},
	property{name: "dollars", form: asDollars, most: mostWindow, ours: true, doc: "The dollars that a period grants, with at most 6 decimals, in place of requests_per_unit: at most 1000, or 999999999.999999 with fixed_window. Needs count: usd. A burst beside it is in millionths of a dollar."},
	property{name: "period", form: asPeriod, ours: true, doc: "The period if no unit fits: 1ms to 8784h (366 days), in whole milliseconds. With concurrency, the longest time for which a slot is held without renewal."},
	property{name: "burst", form: asNumber, least: 1, most: mostUnits, ours: true, algorithms: bursting, absent: "requests_per_unit", doc: "The most that a key can be charged at once: the burst of a gcra, the capacity of a token_bucket, the queue of a leaky_bucket."},
	property{name: "buckets", form: asNumber, least: 2, most: 3600, ours: true, algorithms: bucketing, absent: "60", doc: "The number of buckets of a rolling_window, which refuses at most one bucket early."},
	property{name: "anchor", form: asWord, words: anchors, ours: true, algorithms: dated, absent: "epoch", doc: "The start of windows: aligned to 1970-01-01 00:00 UTC, or with the first charge after the last window."},
	property{name: "time_zone", ours: true, algorithms: dated, doc: "An IANA time zone such as Europe/Paris. Windows become those of its calendar: day, week from Monday, month, year."},
	property{name: "anchor_day", form: asNumber, least: 1, most: 31, ours: true, algorithms: dated, absent: "1", doc: "The day on which calendar months begin, or the last day of a shorter month. Needs time_zone and a unit of month."},
	property{name: "charge_refused", form: asTruth, ours: true, algorithms: counting, doc: "Count refused requests, too, for costs that are known only afterwards."},
	property{name: "block", form: asPeriod, ours: true, algorithms: counting, absent: "no block", doc: "Refuse a key for that long after the limit has refused a request of it: 1ms to 240h, in whole milliseconds. Requests that are refused meanwhile do not extend it. Not with charge_refused, lease or quota, and not for a request with max_wait. docs/algorithms.md explains it."},
	property{name: "keep", form: asNumber, least: 1, most: mostWindow - 1, ours: true, absent: "0", doc: "The number of units that a request must leave free: it is granted only if that many remain after it. Classes of different priority can thus share a budget. Less than the burst; needs an algorithm or a budget. Not with lease or charge_refused."},
	property{name: "keep_dollars", form: asDollars, most: mostWindow - 1, ours: true, absent: "0", doc: "The dollars that a request must leave free, with at most 6 decimals: keep for limits with count: usd. docs/models.md explains it."},
	property{name: "lease", form: asTruth, ours: true, algorithms: leasable, doc: "Let each instance charge units ahead and spend them without a call to the store. Not with charge_refused, keep, block or otherwise. docs/library.md says by how much that may exceed the limit or refuse too early."},
	property{name: "quota", form: asTruth, ours: true, algorithms: leasable, doc: "Let Envoys lease units by their rate limit quota service, with --rlqs on. A lease has the units of a second, so the burst must have as many, and at least 2. All limits of the descriptor need it. Not with lease, keep, block, charge_refused, a count other than requests, otherwise, trial, shadow_mode or enforce, and not below a key with a *. docs/rlqs.md explains it."},
	property{name: "max_keys", form: asNumber, least: 1, most: keylimit.MaxKeys, ours: true, absent: "any number, unless --max-keys says otherwise", doc: "The number of recently used keys that each instance tracks. Further keys share the budget of a single key, so clients that invent keys cannot fill the store. docs/operations.md says how long a key counts."},
	property{name: "on_store_failure", form: asWord, words: storeFailures, ours: true, absent: "local", doc: "The answer while the store reaches no decision: local grants this instance's local share, allow grants, deny refuses, and error returns the error. The default for limits without an algorithm is error, unless --on-store-failure changes it."},
	property{name: "was", ours: true, doc: "An earlier name of the limit. The limit keeps the keys of that name, so that nothing is forgotten that was used under it. Needs a name."},
	property{name: "alert", form: asPercents, ours: true, algorithms: alerting, absent: "no alerts", doc: "The parts of the limit, such as [80%, 100%], at which weir models posts an alert to --alert-webhook: once for each key, window, part and amount in force, when so much is settled. 100% is also the first refusal for what was used. Needs windows of a day or longer. Not with charge_refused, max_keys or anchor: first. docs/models.md explains it."},
	property{name: "show", form: asTruth, ours: true, doc: "Let everybody whom the limit applies to see at GET /v1/me of weir models what is used of it. The limits of one key and one user are always shown. Needs an algorithm."},
	property{name: "instead", ours: true, doc: "The model that weir models puts in place of a dearer one, once, when this limit refuses a request to it: a name, or a pattern, for which the first row of the prices without a * counts that it matches. The request is then planned anew. Not with block. docs/models.md explains it."},
	property{name: "at", form: asPart, ours: true, absent: "100%", doc: "The part of the limit from which instead is taken, 1% … 99%. The rest is left to requests that have no cheaper model. Needs instead."},
)

// inModel has the keys of a row of the price table.
var inModel = newScope("in models", "model", "The prices of a language model, in dollars per million tokens.",
	property{name: "model", required: true, doc: "The name of the model, as in requests. Each * stands for any text."},
	property{name: "input", form: asDollars, most: MaxPrice, required: true, doc: "The price of the input that is not cached."},
	property{name: "cache_read", form: asDollars, most: MaxPrice, absent: "that of input", doc: "The price of the input that is read from a cache."},
	property{name: "cache_write", form: asDollars, most: MaxPrice, absent: "that of input", doc: "The price of the input that is written to a cache."},
	property{name: "output", form: asDollars, most: MaxPrice, required: true, doc: "The price of the output."},
	property{name: "max_output", form: asNumber, least: 1, most: mostUnits, absent: "unknown", doc: "The largest output of the model, in tokens. estimate: strict needs it for requests that state no bound, and an answer without usage counts at most so many."},
	property{name: "reasoning", form: asTruth, doc: "The model makes output that clients do not see before the end, such as reasoning. An answer that is cut off then counts the request's bound."},
)

// inPrices has the keys of a price file.
var inPrices = newScope("in a price file", "prices", "A price file has the prices of language models in a file of their own, which rules files name in prices.",
	property{name: "as_of", required: true, doc: "The day on which the prices were right, as 2026-11-01. weir models warns each day once they are older than 90 days."},
	property{name: "models", form: asMaps, of: "model", required: true, doc: "The prices of language models. The first row that matches the requested model counts."},
)

var inCalls = newScope("in calls", "calls",
	"Programs may state a limit in their call. Its budget belongs to the domain, to the key that they name, and to the limit's name or, without one, its algorithm and period.",
	property{name: "allow", form: asTruth, absent: "`true`", doc: "Decide limits in calls. With false, only rules count, and a call with a limit is forbidden."},
	property{name: "max_keys", form: asNumber, least: 1, most: keylimit.MaxKeys, absent: "any number, unless --max-keys says otherwise", doc: "The number of recently used keys that each instance tracks: of each of the names, and of all other limits in calls together. Further keys share one budget."},
	property{name: "on_store_failure", form: asWord, words: storeFailures, absent: "local", doc: "The answer while the store reaches no decision."},
	property{name: "rls_algorithm", form: asWord, words: rlsAlgorithms, absent: "envoyproxy/ratelimit's fixed window", doc: "How limits count that Envoy sends in descriptors. Their numbers stay, and another algorithm is another budget."},
	property{name: "names", form: asNamed, of: "named", doc: "Limits that hold in place of those of the same name in calls: they replace the numbers and the algorithm of a program without a new version of it."},
)

// besideCalls are the keys of a named limit that leave the numbers to the call.
var besideCalls = []string{"shadow_mode", "trial", "max_keys", "on_store_failure"}

var inNamed = newScope("in names", "named",
	"The rule for limits of this name in calls. With the keys of a rate_limit, except unlimited, name, was, show, alert, instead, at, replaces, budget, keep, keep_dollars, lease, quota, count and dollars, it replaces their numbers and their algorithm; without an algorithm, these stay.",
	append(slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool {
		return slices.Contains(append([]string{"unlimited", "name", "was", "show", "alert", "instead", "at", "replaces", "budget", "keep", "keep_dollars", "lease", "quota", "count", "dollars"}, besideCalls...), k.name)
	}),
		property{name: "shadow_mode", form: asTruth, doc: "Decide and charge, but never refuse."},
		property{name: "trial", form: asMap, of: "rate_limit", doc: "A limit on trial beside it, as in a descriptor."},
		property{name: "max_keys", form: asNumber, least: 1, most: keylimit.MaxKeys, absent: "that of calls", doc: "The number of recently used keys that each instance tracks."},
		property{name: "on_store_failure", form: asWord, words: storeFailures, absent: "that of calls", doc: "The answer while the store reaches no decision."},
	)...,
)

var inReplaces = newScope("in replaces", "replaces", "Names another descriptor's limit.",
	property{name: "name", required: true, doc: "The name of the limit."},
)

// inBudget has the keys of a limit that say how it counts.
var inBudget = newScope("in a budget", "budget",
	"A budget is a limit that several rules charge, each with its own keep. It has the keys of a rate_limit except unlimited, name, was, show, instead, at, replaces, budget, block, keep, keep_dollars and quota, and needs an algorithm.",
	slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool {
		return slices.Contains([]string{"unlimited", "name", "was", "show", "instead", "at", "replaces", "budget", "block", "keep", "keep_dollars", "quota"}, k.name)
	})...,
)

var inAlternative = newScope("in otherwise", "alternative", "Limits that are charged together or not at all.",
	property{name: "rate_limit", form: asMap, of: "rate_limit", doc: "The limit of the alternative."},
	property{name: "rate_limits", form: asMaps, of: "rate_limit", doc: "Several limits. A rate_limit beside them is one more."},
)

// inSharing has the keys of a limit that a budget with shares can have.
var inSharing = newScope("in shares", "shares",
	"All values of the descriptor's key share one budget, a gcra. A value with a guarantee is never refused that many units, however much other values use. Unused units are lent to all values. docs/sharing.md explains it.",
	append(slices.DeleteFunc(slices.Clone(inLimit.keys), func(k property) bool {
		return !slices.Contains([]string{"requests_per_unit", "unit", "period", "burst", "on_store_failure"}, k.name)
	}),
		property{name: "algorithm", form: asWord, words: shareable, absent: "gcra", doc: "Guarantees need a budget that drains continuously: gcra."},
		property{name: "headroom", form: asNumber, least: 1, most: mostUnits, absent: "a fifth of the burst", doc: "The part of the burst that is reserved for guarantees. A value can be charged its part of it at one instant: headroom × its guarantee ÷ requests_per_unit, rounded up. A larger cost has no guarantee."},
		property{name: "guarantee", form: asCounts, required: true, least: 1, most: mostUnits, doc: "The units per period that each value is guaranteed, together at most requests_per_unit. Each name is one value, without * and #. All other values have no guarantee."},
	)...,
)

// notOnTrial are the keys of a rate_limit that mean nothing where it never refuses.
var notOnTrial = []string{"unlimited", "replaces", "budget", "lease", "quota", "on_store_failure", "was", "show", "alert", "instead", "at"}

var scopes = []*scope{atTop, inDescriptor, inLimit, inReplaces, inBudget, inAlternative, inSharing, inModel, inPrices, inCalls, inNamed}

// weirKeys are the keys of a rate_limit that mean nothing without an algorithm.
var weirKeys = func() (names []string) {
	for _, k := range inLimit.keys {
		if k.ours {
			names = append(names, k.name)
		}
	}
	return names
}()
