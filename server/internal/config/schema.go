package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// callNamePattern matches the names that [IsCallName] accepts.
const callNamePattern = "^[A-Za-z0-9_.:-]{1,64}$"

// schema is a JSON Schema, or part of one.
type schema = map[string]any

// Schema returns the JSON Schema (draft 7) of rules files, as editors read it. It refuses
// no file that [Parse] reads. It finds mistakes that concern a single map; only Parse
// finds the others.
func Schema() []byte {
	root := schema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "Weir's rules files",
		"$ref":        "#/definitions/" + atTop.title,
		"definitions": schema{},
	}
	for _, s := range scopes {
		root["definitions"].(schema)[s.title] = s.schema()
	}
	encoded, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // It is made of maps, lists and texts.
	}
	return append(encoded, '\n')
}

func (s *scope) schema() schema {
	properties, required := schema{}, []string{}
	for _, k := range s.keys {
		properties[k.name] = k.schema()
		if k.required {
			required = append(required, k.name)
		}
	}
	made := schema{
		"description": s.doc, "type": "object",
		"properties": properties, "additionalProperties": false, "required": required,
	}
	switch s {
	case atTop:
		made["patternProperties"] = schema{"^x-": schema{}}
		classes := properties["classes"].(schema)
		classes["items"] = schema{"type": []string{"string", "number", "boolean"}, "pattern": callNamePattern}
		classes["minItems"], classes["maxItems"], classes["uniqueItems"] = 2, maxClasses, true
	case inDescriptor:
		made["if"] = schema{"required": []string{"share_threshold"}, "properties": schema{"share_threshold": schema{"const": true}}}
		star := schema{"type": "string", "pattern": `\*`}
		made["then"] = schema{"anyOf": []schema{
			{"required": []string{"key"}, "properties": schema{"key": star}},
			{"required": []string{"value"}, "properties": schema{"value": star}},
		}}
		properties["rate_limits"].(schema)["items"] = schema{"allOf": []schema{reference(inLimit.title), counted()}}
		properties["trial"] = onTrial(properties["trial"].(schema)["description"])
		made["allOf"] = enforceRules()
		properties["otherwise"].(schema)["items"] = schema{"allOf": []schema{
			reference(inAlternative.title), {"anyOf": []schema{{"required": []string{"rate_limit"}}, {"required": []string{"rate_limits"}}}},
		}}
	case inSharing:
		made["oneOf"] = []schema{{"required": []string{"unit"}}, {"required": []string{"period"}}}
	case inAlternative:
		properties["rate_limit"] = schema{"allOf": []schema{reference(inLimit.title), counted()}, "description": "The limit of the alternative."}
		properties["rate_limits"].(schema)["items"] = schema{"allOf": []schema{reference(inLimit.title), counted()}}
	case inLimit:
		made["allOf"] = limitRules()
	case inNamed:
		none := schema{}
		for _, k := range s.keys {
			if !slices.Contains(besideCalls, k.name) {
				none[k.name] = false
			}
		}
		properties["trial"] = onTrial(properties["trial"].(schema)["description"])
		made["if"], made["then"], made["else"] = has("algorithm", nil), schema{"allOf": limitRules()}, schema{"properties": none}
	case inCalls:
		properties["names"].(schema)["propertyNames"] = schema{"pattern": callNamePattern}
	case inBudget:
		made["allOf"] = []schema{reference(inLimit.title), {"required": []string{"algorithm"}}}
	}
	return made
}

// counted is true of limits that are Weir's.
func counted() schema {
	return schema{"anyOf": []schema{{"required": []string{"algorithm"}}, {"required": []string{"budget"}}}}
}

func reference(title string) schema { return schema{"$ref": "#/definitions/" + title} }

// schema describes the possible values of the key. Null usually counts as absent.
func (k *property) schema() schema {
	made := k.content()
	made["description"] = k.doc
	if k.absent != "" {
		made["description"] = k.doc + " Without it: " + k.absent + "."
	}
	return made
}

func (k *property) content() schema {
	switch k.form {
	case asWord:
		return k.wordSchema()
	case asTruth:
		return schema{"anyOf": []schema{{"type": []string{"boolean", "null"}}, {"enum": spelledTruths()}}}
	case asNumber:
		whole := schema{"type": []string{"integer", "null"}, "minimum": k.least, "maximum": k.most}
		// For YAML 1.2, which editors speak, 1_000 is text.
		return schema{"anyOf": []schema{whole, {"type": "string", "pattern": "^[+-]?[0-9][0-9a-fA-FxXoObB]*_[0-9a-fA-F_]*$"}}}
	case asDollars:
		return schema{"type": []string{"number", "null"}, "minimum": 0, "maximum": inDollars(k.most)}
	case asPeriod:
		return schema{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`}
	case asMap:
		return schema{"anyOf": []schema{reference(k.of), {"type": "null"}}}
	case asCounts:
		return schema{"type": "object", "propertyNames": schema{"pattern": "^[^*#]+$"}, "additionalProperties": schema{"type": "integer", "minimum": k.least, "maximum": k.most}}
	case asNamed:
		return schema{"type": []string{"object", "null"}, "additionalProperties": reference(k.of)}
	case asMaps:
		return schema{"type": []string{"array", "null"}, "items": reference(k.of)}
	case asTexts:
		return schema{"type": []string{"array", "null"}, "items": textSchema(true)}
	case asData:
		return schema{"type": []string{"object", "null"}}
	case asPercents:
		return schema{"type": []string{"array", "null"}, "items": schema{"type": "string", "pattern": percentPattern}, "uniqueItems": true}
	case asPart:
		return schema{"anyOf": []schema{{"type": "string", "pattern": partPattern}, {"type": "null"}}}
	default:
		return textSchema(k.required || k.name == "time_zone")
	}
}

// textSchema accepts numbers and booleans, too: they are read as text, as they are
// written.
func textSchema(needed bool) schema {
	types := []string{"string", "number", "boolean"}
	if needed {
		return schema{"type": types, "minLength": 1, "maxLength": MaxTextBytes}
	}
	return schema{"type": append(types, "null"), "maxLength": MaxTextBytes}
}

// wordSchema takes units in any case of letters, but offers the lower one.
func (k *property) wordSchema() schema {
	switch k.name {
	case "algorithm":
		return schema{"enum": k.words}
	case "unit":
		return schema{"anyOf": []schema{{"enum": k.words}, {"type": "string", "pattern": anyCase(append(slices.Clone(k.words), "unknown"))}, {"enum": []any{nil, ""}}}}
	}
	return schema{"enum": append(anys(k.words), nil)}
}

// onTrial is a limit without the keys that have no meaning on trial.
func onTrial(doc any) schema {
	none := schema{}
	for _, name := range notOnTrial {
		none[name] = false
	}
	limit := schema{"allOf": []schema{reference(inLimit.title), {"required": []string{"algorithm"}, "properties": none}}}
	return schema{"anyOf": []schema{limit, {"type": "null"}}, "description": doc}
}

// enforceRules describe the keys that may accompany the keys for a rollout.
func enforceRules() []schema {
	some := schema{"not": schema{"type": "null"}}
	live := schema{"rate_limit": schema{"allOf": []schema{{"type": "object"}, counted()}}}
	several := schema{"rate_limits": schema{"type": "array", "minItems": 1}}
	limited := schema{"anyOf": []schema{{"required": []string{"rate_limit"}, "properties": schema{"rate_limit": schema{"type": "object"}}}, {"required": []string{"rate_limits"}, "properties": several}}}
	own := schema{"anyOf": []schema{{"required": []string{"rate_limit"}, "properties": live}, {"required": []string{"rate_limits"}, "properties": several}, has("shares", some)}}
	return []schema{
		{"if": has("estimate", some), "then": own},
		{"if": has("output_guess", some), "then": own},
		{"if": has("trial", some), "then": limited},
		{"if": has("enforce", some), "then": schema{
			"anyOf":      []schema{{"required": []string{"rate_limit"}, "properties": live}, {"required": []string{"rate_limits"}, "properties": several}},
			"properties": schema{"shadow_mode": schema{"enum": unset()}},
		}},
	}
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}

// anyCase is a pattern for words in any case of letters.
func anyCase(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteByte('|')
		}
		for _, r := range word {
			b.WriteString("[" + strings.ToUpper(string(r)) + string(r) + "]")
		}
	}
	return "^(" + b.String() + ")$"
}

// spelledTruths are the booleans that YAML 1.2 takes for text.
func spelledTruths() []string {
	var words []string
	for word := range truths {
		if word != "true" && word != "false" {
			words = append(words, word, strings.ToUpper(word[:1])+word[1:], strings.ToUpper(word))
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// limitRules say which keys of a limit stand together.
func limitRules() []schema {
	unlimited := schema{"required": []string{"unlimited"}, "properties": schema{"unlimited": schema{"const": true}}}
	none := schema{"algorithm": false, "budget": false}
	for _, name := range weirKeys {
		none[name] = false
	}
	noUnit := schema{"enum": []any{nil, "", "unknown", "UNKNOWN", "Unknown"}}
	someUnit := schema{"unit": schema{"not": noUnit}}
	free := schema{"allOf": []schema{{"properties": none}, {"properties": schema{"unit": noUnit}}}}
	theirs := schema{"required": []string{"unit"}, "allOf": []schema{{"properties": none}, {"properties": someUnit}}}
	counted := schema{"required": []string{"requests_per_unit"}, "properties": schema{"requests_per_unit": schema{"not": schema{"type": "null"}}, "dollars": false, "count": schema{"not": schema{"const": MeterUSD}}}}
	paid := schema{"required": []string{"dollars", "count"}, "properties": schema{"dollars": schema{"type": "number"}, "requests_per_unit": false, "count": schema{"const": MeterUSD}}}
	ours := schema{
		"allOf": []schema{{"properties": someUnit}, {"if": has("dollars", nil), "then": paid, "else": counted}},
		"oneOf": []schema{{"required": []string{"unit"}}, {"required": []string{"period"}}},
	}
	charging := schema{"unit": false, "requests_per_unit": false}
	for name := range none {
		charging[name] = name == "budget" || slices.Contains(besideBudget, name)
	}
	own := schema{"if": has("algorithm", nil), "then": ours, "else": theirs}
	rules := []schema{
		{"if": unlimited, "then": free},
		{"if": schema{"not": unlimited}, "then": schema{"if": has("budget", nil), "then": schema{"properties": charging}, "else": own}},
		{"if": has("algorithm", schema{"const": weir.Concurrency.String()}), "then": schema{"properties": schema{"count": schema{"enum": []any{MeterRequests, nil}}}}},
		{"if": has("quota", schema{"not": schema{"enum": unset()}}), "then": schema{"properties": schema{
			"charge_refused": schema{"enum": unset()}, "lease": schema{"enum": unset()}, "keep": schema{"type": "null"}, "keep_dollars": schema{"type": "null"}, "block": schema{"type": "null"},
			"count": schema{"enum": []any{MeterRequests, nil}},
		}}},
		{"if": has("algorithm", schema{"enum": logging}), "then": atMost(mostLogged)},
		{"if": has("algorithm", schema{"not": schema{"enum": reporting}}), "then": atMost(mostUnits)},
		{"if": schema{"not": has("algorithm", nil)}, "then": atMost(mostCounted)},
		{"if": has("alert", schema{"type": "array"}), "then": schema{"properties": schema{
			"unit": schema{"anyOf": []schema{{"type": "string", "pattern": anyCase(longUnits())}, {"enum": []any{nil, ""}}}}, "anchor": schema{"enum": []any{"epoch", nil}}, "charge_refused": schema{"enum": unset()}, "max_keys": schema{"type": "null"},
		}}},
		{"if": has("count", schema{"const": MeterUSD}), "then": schema{"properties": schema{"keep": schema{"type": "null"}}}},
		{"if": has("keep_dollars", schema{"not": schema{"type": "null"}}), "then": schema{"anyOf": []schema{has("count", schema{"const": MeterUSD}), has("budget", nil)}}},
		{"if": has("was", nil), "then": schema{"required": []string{"name"}}},
	}
	return append(rules, algorithmRules()...)
}

// longUnits are the units of a day and longer.
func longUnits() []string {
	return slices.DeleteFunc(slices.Clone(unitNames), func(name string) bool { return units[name] < day })
}

// algorithmRules say which keys of a limit need which algorithms.
func algorithmRules() (rules []schema) {
	for _, k := range inLimit.keys {
		if k.algorithms != nil {
			rules = append(rules, schema{"if": has(k.name, k.meant()), "then": schema{"properties": schema{"algorithm": schema{"enum": k.algorithms}}}})
		}
	}
	return rules
}

// meant matches values that differ from leaving the key out.
func (k *property) meant() schema {
	nothing := []any{nil}
	switch k.form {
	case asTruth:
		nothing = unset()
	case asWord:
		nothing = append(nothing, k.absent)
	}
	return schema{"not": schema{"enum": nothing}}
}

// unset matches values of a boolean that equal its absence.
func unset() []any {
	return []any{nil, false, "no", "No", "NO", "off", "Off", "OFF", "n", "N"}
}

// has matches maps that have the key with a matching value.
func has(name string, so schema) schema {
	if so == nil {
		return schema{"required": []string{name}}
	}
	return schema{"required": []string{name}, "properties": schema{name: so}}
}

func atMost(most int64) schema {
	return schema{"properties": schema{"requests_per_unit": schema{"maximum": most}, "dollars": schema{"maximum": inDollars(most)}}}
}

// inDollars is an amount in millionths of a dollar as a number of JSON.
func inDollars(micros int64) json.Number { return json.Number(DollarsText(micros)) }
