package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
)

// descriptor makes a rules file around the fields of one descriptor.
func descriptor(fields string) string {
	return "domain: d\ndescriptors:\n  - " + strings.ReplaceAll(fields, "\n", "\n    ")
}

func limit(fields string) string { return descriptor("key: a\nrate_limit: {" + fields + "}") }

// verdicts are envoyproxy/ratelimit's inputs. An empty want is a file that is
// read; any other is part of the only problem.
var verdicts = []struct{ name, text, want string }{
	{"empty file", "", "f:1:1: the file is empty"},
	{"only comments", "# nothing\n", "the file is empty"},
	{"no domain", "descriptors: []", "f:1:1: domain is missing"},
	{"empty domain", "domain: ''", "domain is empty"},
	{"number as domain", "domain: 5", ""},
	{"descriptors null", "domain: d\ndescriptors:", ""},
	{"descriptors empty", "domain: d\ndescriptors: []", ""},
	{"descriptors a map", "domain: d\ndescriptors: {}", "f:2:14: descriptors is a map; want a list"},
	{"descriptors text", "domain: d\ndescriptors: no", `descriptors is "no"; want a list`},
	{"text in the list", "domain: d\ndescriptors: [a]", `"a" where a map belongs`},
	{"nothing in the list", "domain: d\ndescriptors:\n  -", "nothing where a map belongs"},
	{"key missing", descriptor("value: x"), "f:3:5: key is missing"},
	{"key empty", descriptor("key: ''"), "key is empty"},
	{"key null", descriptor("key:"), "key is empty"},
	{"key a list", descriptor("key: []"), "key is a list; want text"},
	{"equal entries", "domain: d\ndescriptors: [{key: a, value: x}, {key: a, value: x}]", `f:2:35: key "a" with value "x" again`},
	{"joined alike", "domain: d\ndescriptors: [{key: a, value: b_c}, {key: a_b, value: c}]", ""},
	{"joined alike without value", "domain: d\ndescriptors: [{key: a, value: b}, {key: a_b}]", ""},
	{"default beside values", "domain: d\ndescriptors: [{key: a, value: b}, {key: a}]", ""},
	{"unknown key", descriptor("key: a\nfoo: 1"), `f:4:5: unknown key "foo" in a descriptor`},
	{"unknown key below metadata", descriptor("key: a\nmetadata: {foo: 1}"), ""},
	{"unit at the top", "domain: d\nunit: day", `f:2:1: "unit" stands at the top level; want it in rate_limit`},
	{"shadow_mode in rate_limit", limit("unit: day, shadow_mode: true"), `"shadow_mode" stands in rate_limit; want it in a descriptor`},
	{"domain in a descriptor", descriptor("key: a\ndomain: d"), `want it at the top level`},
	{"count without algorithm", limit("unit: day, requests_per_unit: 1, count: input"), "count without algorithm"},
	{"count of slots", limit("unit: day, requests_per_unit: 1, algorithm: concurrency, count: output"), "count: output beside algorithm: concurrency"},
	{"count unknown", limit("unit: day, requests_per_unit: 1, algorithm: gcra, count: inputs"), `did you mean "input"`},
	{"dollars", limit("unit: day, dollars: 999.999999, algorithm: fixed_window, count: usd"), ""},
	{"dollars and requests", limit("unit: day, requests_per_unit: 1, dollars: 1, algorithm: gcra, count: usd"), "requests_per_unit beside dollars"},
	{"dollars of nothing", limit("unit: day, dollars: 1, algorithm: gcra"), "dollars without count: usd"},
	{"usd without dollars", limit("unit: day, requests_per_unit: 1, algorithm: gcra, count: usd"), "a limit of usd without dollars"},
	{"dollars null", limit("unit: day, dollars: ~, algorithm: gcra, count: usd"), "dollars is nothing"},
	{"was", limit("name: new, was: old, unit: day, requests_per_unit: 1, algorithm: gcra"), ""},
	{"was without name", limit("was: old, unit: day, requests_per_unit: 1, algorithm: gcra"), "was without name; want the new name beside it"},
	{"was itself", limit("name: new, was: new, unit: day, requests_per_unit: 1, algorithm: gcra"), `was is "new", a name in the same descriptor`},
	{"was without algorithm", limit("name: new, was: old, unit: day, requests_per_unit: 1"), "was without algorithm"},
	{"was another's name", descriptor("key: a\nrate_limits:\n  - {name: a, unit: day, requests_per_unit: 1, algorithm: gcra}\n  - {name: b, was: a, unit: day, requests_per_unit: 2, algorithm: gcra}"), `was is "a", a name in the same descriptor; want a name that no limit has now`},
	{"dollars of a window", limit("unit: month, dollars: 999999999.999999, algorithm: fixed_window, count: usd"), ""},
	{"dollars too many", limit("unit: day, dollars: 1000.01, algorithm: gcra, count: usd"), "dollars is \"1000.01\"; want dollars, 0 … 1000, with at most 6 decimals, such as 2.5, or algorithm: fixed_window, to 999999999.999999"},
	{"dollars of a window too many", limit("unit: day, dollars: 1000000000, algorithm: fixed_window, count: usd"), "want dollars, 0 … 999999999.999999"},
	{"count of a window", limit("unit: month, requests_per_unit: 999999999999999, algorithm: fixed_window"), ""},
	{"count of a window too large", limit("unit: month, requests_per_unit: 1000000000000000, algorithm: fixed_window"), "requests_per_unit is 1000000000000000; want 0 … 999999999999999"},
	{"classes", "domain: d\nclasses: [interactive, batch, a.b-c_9]", ""},
	{"one class", "domain: d\nclasses: [interactive]", "f:2:10: classes has length 1; want 2 … 16 names, the highest class first, such as [interactive, batch]"},
	{"classes without a name", "domain: d\nclasses: [interactive, '']", "f:2:24: \"\" in classes; want a name of at most 64 letters"},
	{"classes with a space", "domain: d\nclasses: [interactive, 'a b']", `f:2:24: "a b" in classes; want a name of at most 64 letters, digits and any of _ - . :`},
	{"classes in classes", "domain: d\nclasses: [interactive, [batch]]", "f:2:24: a list in classes"},
	{"a class twice", "domain: d\nclasses: [batch, interactive, batch]", `f:2:31: "batch" again in classes; want each class once`},
	{"classes as a text", "domain: d\nclasses: batch", "classes is \"batch\"; want a list"},
	{"keep in dollars", limit("unit: month, dollars: 20000, algorithm: fixed_window, count: usd, keep_dollars: 3000.5"), ""},
	{"keep in dollars, almost all", limit("unit: month, dollars: 999999999.999999, algorithm: fixed_window, count: usd, keep_dollars: 999999999.999998"), ""},
	{"keep in dollars, all", limit("unit: month, dollars: 20000, algorithm: fixed_window, count: usd, keep_dollars: 20000"), "f:4:98: keep_dollars is 20000; want less than 20000 dollars, which is the dollars at line 4"},
	{"keep in dollars beyond the burst", limit("unit: day, dollars: 20, burst: 5000000, algorithm: gcra, count: usd, keep_dollars: 5"), "keep_dollars is 5; want less than 5 dollars, which is the burst at line 4"},
	{"keep in dollars, too many", limit("unit: month, dollars: 20000, algorithm: fixed_window, count: usd, keep_dollars: 1000000000"), `keep_dollars is "1000000000"; want dollars, 0 … 999999999.999999, with at most 6 decimals, such as 2.5`},
	{"keep in dollars of gcra, too many", limit("unit: day, dollars: 1000, algorithm: gcra, count: usd, keep_dollars: 1000.01"), `keep_dollars is "1000.01"; want dollars, 0 … 1000`},
	{"keep in dollars, none", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, keep_dollars: 0"), "keep_dollars is 0; want at least 0.000001 dollars, or nothing for the default"},
	{"keep in dollars, negative", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, keep_dollars: -1"), `keep_dollars is "-1"; want dollars, 0 … 1000`},
	{"keep in dollars, quoted", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, keep_dollars: '3'"), "without quotes"},
	{"keep in dollars of tokens", limit("unit: day, requests_per_unit: 20, algorithm: gcra, count: tokens, keep_dollars: 3"), "f:4:84: keep_dollars for a limit of tokens; want keep in its place"},
	{"keep in dollars of requests", limit("unit: day, requests_per_unit: 20, algorithm: gcra, keep_dollars: 3"), "keep_dollars for a limit of requests; want keep in its place"},
	{"keep in dollars without algorithm", limit("unit: day, requests_per_unit: 20, keep_dollars: 3"), "keep_dollars without algorithm"},
	{"keep in dollars and lease", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, lease: true, keep_dollars: 3"), "keep_dollars beside lease: true; want one of the two"},
	{"keep in dollars and quota", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, quota: true, keep_dollars: 3"), "quota beside count: usd"},
	{"keep of dollars", limit("unit: day, dollars: 20, algorithm: gcra, count: usd, keep: 3"), "f:4:71: keep for a limit of usd; want keep_dollars in its place"},
	{"keep of a budget of dollars", "domain: d\nbudgets: {b: {unit: month, dollars: 20000, algorithm: fixed_window, count: usd}}\ndescriptors: [{key: class, rate_limit: {budget: b, keep_dollars: 300}}]", ""},
	{"show of a budget", "domain: d\nbudgets: {b: {unit: month, requests_per_unit: 5, algorithm: fixed_window}}\ndescriptors: [{key: class, rate_limit: {budget: b, show: true}}]", ""},
	{"keep of all of a budget of dollars", "domain: d\nbudgets: {b: {unit: month, dollars: 200, algorithm: fixed_window, count: usd}}\ndescriptors: [{key: class, rate_limit: {budget: b, keep_dollars: 300}}]", "f:3:66: keep_dollars is 300; want less than 200 dollars, which is the dollars at line 2"},
	{"keep of a budget of tokens in dollars", "domain: d\nbudgets: {b: {unit: month, requests_per_unit: 20000, algorithm: fixed_window, count: tokens}}\ndescriptors: [{key: class, rate_limit: {budget: b, keep_dollars: 300}}]", "f:3:52: keep_dollars for a limit of tokens; want keep in its place"},
	{"keep_dollars in a budget", "domain: d\nbudgets: {b: {unit: month, dollars: 200, algorithm: fixed_window, count: usd, keep_dollars: 3}}\ndescriptors: [{key: class, rate_limit: {budget: b}}]", `"keep_dollars" stands in a budget; want it in rate_limit`},
	{"keep of a large window", limit("unit: month, requests_per_unit: 999999999999999, algorithm: fixed_window, keep: 999999999999998"), ""},
	{"dollars negative", limit("unit: day, dollars: -1, algorithm: fixed_window, count: usd"), `dollars is "-1"`},
	{"dollars quoted", limit("unit: day, dollars: '1', algorithm: fixed_window, count: usd"), "without quotes"},
	{"estimate", descriptor("key: a\nestimate: strict\noutput_guess: 5\nrate_limit: {unit: day, requests_per_unit: 1, algorithm: gcra}"), ""},
	{"estimate without limit", descriptor("key: a\nestimate: strict"), "estimate without algorithm"},
	{"output_guess without limit", descriptor("key: a\noutput_guess: 5\nrate_limit: {unit: day}"), "output_guess without algorithm"},
	{"output_guess of 0", descriptor("key: a\noutput_guess: 0\nrate_limit: {unit: day, requests_per_unit: 1, algorithm: gcra}"), "output_guess is 0"},
	{"model without price", "domain: d\nmodels: [{model: a, input: 1}]", "output is missing"},
	{"model without name", "domain: d\nmodels: [{input: 1, output: 1}]", "model is missing"},
	{"price negative", "domain: d\nmodels: [{model: a, input: -1, output: 1}]", `input is "-1"`},
	{"number as a key", descriptor("key: a\n5: x"), `unknown key "5"`},
	{"list as a key", descriptor("key: a\n? [a]\n: x"), "a list as a key; want text"},
	{"letters swapped", limit("unti: day"), `did you mean "unit"?`},
	{"key twice", descriptor("key: a\nkey: b"), `f:4:5: "key" again in the same map`},
	{"second document", "domain: d\n---\ndomain: e", "f:3:1: a second YAML document"},
	{"invalid YAML", "domain: [", "f:1:1: not YAML: "},
	{"tab", "domain: d\ndescriptors:\n\t- key: a", "not YAML: found character that cannot start any token"},
	{"brace open", "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day\n  - key: b", "f:4:5: not YAML: did not find expected ',' or '}'; want commas between the items of {…}, and a } at the end"},
	{"brace closed later", "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day,\n      requests_per_unit: 1\n    }\n   value: b", "f:7:4: not YAML: "},
	{"indentation", "domain: d\ndescriptors:\n  - key: a\n   rate_limit: {unit: day}", "f:4:4: not YAML: did not find expected '-' indicator; want the indentation of the other items"},
	{"quote open", "domain: d\ndescriptors:\n  - key: a\n    value: \"b\n    rate_limit: {unit: day}", "f:4:5: not YAML: found unexpected end of stream; want the quote"},
	{"colon in a value", "domain: d\ndescriptors:\n  - key: a\n    value: b: c", "f:4:5: not YAML: mapping values are not allowed in this context; want one key: value a line"},
	{"period alone", limit("period: 30s, requests_per_unit: 5"), "f:4:18: period without algorithm; want algorithm: gcra, or another one, beside it, or a unit in its place"},
	{"top level a list", "- a", "a list where a map belongs"},
	{"top level a scalar", "a", `"a" where a map belongs`},
	{"unit missing", limit("requests_per_unit: 1"), "f:4:17: unit is missing"},
	{"unit empty", limit("unit: ''"), `unit is ""`},
	{"unit unknown", limit("unit: unknown"), `unit is "unknown"`},
	{"unit misspelt", limit("unit: hous"), `did you mean "hour"?`},
	{"unit plural", limit("unit: minutes"), `did you mean "minute"?`},
	{"unit padded", limit("unit: ' day'"), `did you mean "day"?`},
	{"unit a number", limit("unit: 1"), `unit is "1"`},
	{"unit a list", limit("unit: []"), `unit is a list`},
	{"rate_limit without fields", limit(""), "unit is missing"},
	{"rate_limit null", descriptor("key: a\nrate_limit:"), ""},
	{"rate_limit text", descriptor("key: a\nrate_limit: 5"), `"5" where a map belongs`},
	{"unlimited with unit", limit("unlimited: true, unit: day"), "unit beside unlimited: true"},
	{"unlimited with unknown unit", limit("unlimited: true, unit: UNKNOWN"), ""},
	{"unlimited with count", limit("unlimited: true, requests_per_unit: 5"), ""},
	{"count missing", limit("unit: day"), ""},
	{"count null", limit("unit: day, requests_per_unit: "), ""},
	{"count 0", limit("unit: day, requests_per_unit: 0"), ""},
	{"count largest", limit("unit: day, requests_per_unit: 4294967295"), ""},
	{"count too large", limit("unit: day, requests_per_unit: 4294967296"), "f:4:48: requests_per_unit is 4294967296; want 0 … 4294967295"},
	{"count negative", limit("unit: day, requests_per_unit: -1"), "requests_per_unit is -1"},
	{"count text", limit("unit: day, requests_per_unit: ten"), `requests_per_unit is "ten"; want a whole number`},
	{"count quoted", limit("unit: day, requests_per_unit: '10'"), `requests_per_unit is "10"; want a whole number, without quotes`},
	{"count a fraction", limit("unit: day, requests_per_unit: 1.5"), `requests_per_unit is "1.5"`},
	{"count with a point", limit("unit: day, requests_per_unit: 1.0"), `requests_per_unit is "1.0"`},
	{"count with an exponent", limit("unit: day, requests_per_unit: 1e3"), `requests_per_unit is "1e3"`},
	{"count infinite", limit("unit: day, requests_per_unit: .inf"), `requests_per_unit is ".inf"`},
	{"count beyond int64", limit("unit: day, requests_per_unit: 99999999999999999999"), "want a whole number"},
	{"count a list", limit("unit: day, requests_per_unit: []"), "requests_per_unit is a list"},
	{"quoted boolean", descriptor("key: a\nshadow_mode: 'true'"), `shadow_mode is "true"; want true or false, without quotes`},
	{"number as boolean", descriptor("key: a\nquota_mode: 1"), `quota_mode is "1"`},
	{"maybe", descriptor("key: a\nquota_mode: maybe"), `quota_mode is "maybe"`},
	{"odd case", descriptor("key: a\nquota_mode: tRUE"), `quota_mode is "tRUE"`},
	{"list as boolean", descriptor("key: a\nquota_mode: []"), `quota_mode is a list`},
	{"boolean null", descriptor("key: a\nquota_mode:"), ""},
	{"replaces itself", limit("unit: day, name: n, replaces: [{name: n}]"), `replaces names "n", which stands in the same descriptor`},
	{"replaces an empty name", limit("unit: day, replaces: [{name: }]"), "name is empty"},
	{"replaces nothing", limit("unit: day, replaces: [{}]"), "name is missing"},
	{"replaces text", limit("unit: day, replaces: [x]"), `"x" where a map belongs`},
	{"replaces nobody", limit("unit: day, replaces: [{name: nobody}]"), ""},
	{"one name for two", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, name: n}}, {key: b, rate_limit: {unit: day, name: n}}]", ""},
	{"shared without star", descriptor("key: a\nvalue: x\nshare_threshold: true"), "f:5:5: share_threshold without a *"},
	{"shared", descriptor("key: a\nvalue: x*\nshare_threshold: true"), ""},
	{"metadata a list", descriptor("key: a\nmetadata: []"), "metadata is a list; want a map"},
	{"metadata with a false tag", descriptor("key: a\nmetadata: {x: !!int abc}"), `metadata is "abc"`},
	{"anchor holder", "x: &a b\ndomain: d", `f:1:1: unknown key "x" at the top level`},
	{"declared anchor holder", "x-a: &a b\ndomain: *a", ""},
	{"binary", "domain: !!binary aGk=", "domain is tagged"},
	{"long value", descriptor("key: a\nvalue: " + strings.Repeat("x", 1025)), "value has 1025 bytes; want at most 1024"},
	{"trial", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1}"), ""},
	{"trial null", descriptor("key: a\ntrial:"), ""},
	{"trial beside unlimited", descriptor("key: a\nrate_limit: {unlimited: true}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1}"), ""},
	{"trial of nothing", descriptor("key: a\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1}"), "f:4:5: trial without rate_limit"},
	{"trial without algorithm", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {unit: day}"), "a trial without algorithm; want an algorithm: one of gcra"},
	{"trial unlimited", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1, unlimited: true}"), "unlimited in trial; want nothing: a limit on trial"},
	{"trial leased", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1, lease: true}"), "lease in trial"},
	{"trial that replaces", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 1, replaces: [{name: b}]}"), "replaces in trial"},
	{"trial without a count", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day}"), "requests_per_unit is missing"},
	{"trial a list", descriptor("key: a\nrate_limit: {unit: day}\ntrial: []"), "a list where a map belongs"},
	{"enforce", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nenforce: 0.25%"), ""},
	{"enforce all", descriptor("key: a\nrate_limits: [{algorithm: gcra, unit: day, requests_per_unit: 1}]\nenforce: 100%\nshadow_mode: no"), ""},
	{"enforce null", descriptor("key: a\nenforce:"), ""},
	{"enforce a number", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nenforce: 10"), `enforce is "10"; want 0% … 100%, with at most two decimals; did you mean "10%"?`},
	{"enforce more than all", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nenforce: 101%"), `enforce is "101%"`},
	{"enforce a hair", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nenforce: 0.001%"), `enforce is "0.001%"`},
	{"enforce a list", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nenforce: []"), "enforce is a list"},
	{"enforce nothing", descriptor("key: a\nenforce: 10%"), "enforce without algorithm; want a rate_limit that names an algorithm"},
	{"enforce theirs", descriptor("key: a\nrate_limit: {unit: day}\nenforce: 10%"), "enforce without algorithm"},
	{"enforce a shadow", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}\nshadow_mode: true\nenforce: 10%"), "enforce beside shadow_mode: true; want one of the two"},
	{"quota", limit("algorithm: gcra, unit: second, requests_per_unit: 100, quota: true"), ""},
	{"quota of a minute", limit("algorithm: gcra, unit: minute, requests_per_unit: 2, quota: true"), ""},
	{"quota with a calendar", limit("algorithm: fixed_window, unit: month, time_zone: UTC, requests_per_unit: 1000, quota: true"), ""},
	{"quota without algorithm", limit("unit: second, requests_per_unit: 100, quota: true"), "f:4:56: quota without algorithm"},
	{"quota of slots", limit("algorithm: concurrency, unit: second, requests_per_unit: 100, quota: true"), "f:4:80: quota beside algorithm: concurrency; want an algorithm whose units can be spent later"},
	{"quota of a queue", limit("algorithm: leaky_bucket, unit: second, requests_per_unit: 100, quota: true"), "quota beside algorithm: leaky_bucket"},
	{"quota of refusals", limit("algorithm: gcra, unit: second, requests_per_unit: 100, charge_refused: true, quota: true"), "quota beside charge_refused: true"},
	{"quota and lease", limit("algorithm: gcra, unit: second, requests_per_unit: 100, lease: true, quota: true"), "quota beside lease: true"},
	{"quota and keep", limit("algorithm: gcra, unit: second, requests_per_unit: 100, keep: 5, quota: true"), "quota beside keep: 5"},
	{"quota of tokens", limit("algorithm: gcra, unit: second, requests_per_unit: 100, count: output, quota: true"), "quota beside count: output"},
	{"quota and unlimited", limit("unlimited: true, quota: true"), "quota beside unlimited: true"},
	{"quota of one", limit("algorithm: gcra, unit: day, requests_per_unit: 1, quota: true"), "f:4:46: requests_per_unit is 1 beside quota: true; want at least 2: leases have the units of a second; line 4 has quota"},
	{"quota with a small burst", limit("algorithm: gcra, unit: second, requests_per_unit: 100, burst: 99, quota: true"), "burst is 99 beside quota: true; want at least 100"},
	{"quota of short windows with a large count", limit("algorithm: fixed_window, period: 100ms, requests_per_unit: 20000000000, quota: true"), "requests_per_unit is 20000000000 beside quota: true; want at least 200000000000"},
	{"quota of short windows", limit("algorithm: fixed_window, period: 100ms, requests_per_unit: 10, quota: true"), "requests_per_unit is 10 beside quota: true; want at least 100"},
	{"quota for some", descriptor("key: a\nrate_limits:\n- {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}\n- {algorithm: gcra, unit: hour, requests_per_unit: 9}"), "f:6:7: a limit without quota: true beside one with it; want quota: true in all limits of the descriptor, which one lease charges; line 5 has it"},
	{"quota and otherwise", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}\notherwise: [{rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}]"), "f:5:5: otherwise beside quota: true"},
	{"quota and trial", descriptor("key: a\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 9}"), "f:5:5: trial beside quota: true"},
	{"quota in trial", descriptor("key: a\nrate_limit: {unit: day}\ntrial: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}"), "quota in trial"},
	{"quota in the shadow", descriptor("key: a\nshadow_mode: true\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}"), "f:4:5: shadow_mode beside quota: true; want one of the two; line 5 has quota"},
	{"quota for a part", descriptor("key: a\nenforce: 50%\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}"), "f:4:5: enforce beside quota: true"},
	{"quota and a budget", "domain: d\nbudgets: {b: {algorithm: gcra, unit: day, requests_per_unit: 9}}\ndescriptors: [{key: a, rate_limit: {budget: b, quota: true}}]", "quota beside budget"},
	{"quota in a budget", "domain: d\nbudgets: {b: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}\ndescriptors: [{key: a, rate_limit: {budget: b}}]", `"quota" stands in a budget; want it in rate_limit`},
	{"quota in calls", "domain: d\ncalls: {names: {n: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}}", `"quota" stands in names; want it in rate_limit`},
	{"quota of any key", descriptor("key: a*\nrate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}"), `f:3:5: quota: true below the key "a*"; want keys without *`},
	{"quota of a key twice", descriptor("key: a\ndescriptors: [{key: a, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}]"), `quota: true below the key "a" twice`},
	{"quota in two orders", "domain: d\ndescriptors:\n- {key: a, value: x, descriptors: [{key: b, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}]}\n- {key: b, descriptors: [{key: a, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}]}", "f:4:26: quota: true below the keys b, a; want the keys in one order: bucket ids have none; f:3 has a, b"},
	{"quota in one order", "domain: d\ndescriptors:\n- {key: a, value: x, descriptors: [{key: b, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}]}\n- {key: a, descriptors: [{key: b, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, quota: true}}, {key: c}]}", ""},
	{"guarantee", descriptor("key: a\nshares: {requests_per_unit: 10, unit: day, guarantee: {b: 5, 7: 1}}"), ""},
	{"guarantee of a pattern", descriptor("key: a\nshares: {requests_per_unit: 10, unit: day, guarantee: {'b*': 5}}"), `f:4:60: "b*" in guarantee; want a value without *`},
	{"windows", "\xef\xbb\xbfdomain: d\r\ndescriptors:\r\n- key: a\r\n", ""},
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse("f", []byte(v.text))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if v.want == "" && got != "" || !strings.Contains(got, v.want) || strings.Contains(got, "\n") {
				t.Errorf("%s\n got: %s\nwant: %s", v.text, got, v.want)
			}
		})
	}
}

func parse(t *testing.T, text string) *config.Domain {
	t.Helper()
	d, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return d
}

// TestSourceText wants names as they were written, whatever YAML takes them for.
func TestSourceText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"074763617300", "1.10", "no", "True", "0x1F", "1_000", "404", "2020-01-01", "12:30", "1.2.3", "1e3", ".inf", "<<", "a b",
	} {
		if got := parse(t, descriptor("key: a\nvalue: "+text)).Descriptors[0].Value; got != text {
			t.Errorf("%s has become %s", text, got)
		}
	}
}

func TestEnvoyLimit(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for unit, period := range map[string]time.Duration{
		"second": time.Second, "MINUTE": time.Minute, "Hour": time.Hour, "day": day,
		"week": 7 * day, "month": 30 * day, "year": 365 * day,
	} {
		got := parse(t, limit("requests_per_unit: 0x10, unit: "+unit)).Descriptors[0].Limits
		want := []config.RateLimit{{
			At: config.Position{File: "f", Line: 4, Column: 17}, Unit: strings.ToLower(unit), OnStoreFailure: config.FailError,
			Limit: weir.Limit{Algorithm: weir.FixedWindow, Count: 16, Period: period, ChargeRefused: true},
		}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(weir.Limit{})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWeirLimits(t *testing.T) {
	t.Parallel()
	d := parse(t, descriptor(`key: a
hash_tag: [a]
rate_limit: {algorithm: gcra, requests_per_unit: 10, period: 1500ms, burst: 3, name: n, replaces: [{name: m}]}
rate_limits:
  - {algorithm: fixed_window, requests_per_unit: 1, unit: DAY, anchor: first, charge_refused: on, on_store_failure: deny}`)).Descriptors[0]
	want := []config.RateLimit{{
		Name: "n", Replaces: []string{"m"}, Grouped: true,
		Limit: weir.Limit{Algorithm: weir.GCRA, Count: 10, Period: 1500 * time.Millisecond, Burst: 3},
	}, {
		Grouped: true, Unit: "day", OnStoreFailure: config.FailDeny,
		Limit: weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: 24 * time.Hour, Anchor: weir.AnchorFirst, ChargeRefused: true},
	}}
	ignore := cmpopts.IgnoreFields(config.RateLimit{}, "At")
	if diff := cmp.Diff(want, d.Limits, ignore, cmpopts.IgnoreUnexported(weir.Limit{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a"}, d.HashTag); diff != "" {
		t.Error(diff)
	}
}

// TestAlgorithms wants every algorithm of the library to be one of the file's, and
// in each of its limits what was written there.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	domains, err := load("testdata/good/algorithms.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range domains[0].Descriptors {
		l := d.Limits[0].Limit
		names = append(names, l.Algorithm.String())
		if l.Algorithm.String() != d.Key || l.Count != 10 || l.ChargeRefused == (l.Algorithm == weir.Concurrency) {
			t.Errorf("%s: %+v", d.Key, l)
		}
	}
	if got := strings.Join(names, ", "); got != algo.Names() {
		t.Errorf("%s, want %s", got, algo.Names())
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	got := parse(t, descriptor("key: a\nmetadata: {i: 5, f: .5, t: 'x', d: 2020-01-01, b: true, n: ~, l: [&m {a: b}], m: {<<: *m, 5: c}}")).Descriptors[0].Metadata
	want := map[string]any{
		"i": 5, "f": .5, "t": "x", "d": "2020-01-01", "b": true, "n": nil,
		"l": []any{map[string]any{"a": "b"}}, "m": map[string]any{"a": "b", "5": "c"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// nested is a file whose descriptors nest to a depth.
func nested(depth int) string {
	text := "domain: d\n"
	for i := range depth {
		pad := strings.Repeat("  ", i)
		text += pad + "descriptors:\n" + pad + "- key: k\n"
	}
	return text
}

// TestBounds wants hostile files refused at little cost.
func TestBounds(t *testing.T) {
	t.Parallel()
	bomb := "domain: d\nx-0: &x0 {k: [a,b,c,d,e,f,g,h]}\n"
	for i := range 9 {
		bomb += fmt.Sprintf("x-%d: &x%d [%s*x%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*x%d,", i), 9), i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"depth":        {nested(16), ""},
		"too deep":     {nested(17), "descriptors nest too deep"},
		"bomb":         {bomb + "descriptors: [{key: a, metadata: {x: *x9}}]", "too large once its aliases are replaced"},
		"bomb of keys": {bomb + "descriptors: *x9", "a list where a map belongs"},
		"deep data":    {"domain: d\ndescriptors: [{key: a, metadata: {x: " + strings.Repeat("[", 99) + strings.Repeat("]", 99) + "}}]", "metadata nests too deep"},
		"mistakes":     {"domain: d\n" + strings.Repeat("a: b\n", 5000), "more than 1000 mistakes"},
		"brackets":     {strings.Repeat("[", 1<<20), "not YAML"},
		"size":         {strings.Repeat("#\n", config.MaxFileBytes), "the file is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := config.Parse("f", []byte(c.text))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse = %.300v", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestManyRules: the size of a file bounds its rules, and nothing else does.
func TestManyRules(t *testing.T) {
	t.Parallel()
	const rules = 50_000
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range rules {
		fmt.Fprintf(&b, "- {key: k, value: v%d, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9, burst: 3}}\n", i)
	}
	if got := len(parse(t, b.String()).Descriptors); got != rules {
		t.Errorf("%d rules", got)
	}
}
