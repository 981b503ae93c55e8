package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// TestReference wants the page to describe every key.
func TestReference(t *testing.T) {
	t.Parallel()
	pages.Section(t, "docs/configuration.md", "reference", sectionOfKeys())
}

// TestSchemaFile wants the file that editors fetch to be the schema.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	const file = "weir.schema.json"
	if *pages.Update {
		if err := os.WriteFile(file, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(Schema()) {
		t.Errorf("%s is out of date: run make generate", file)
	}
}

// sectionOfKeys returns the reference of rules files, in Markdown: every key, its possible
// values, and the effect of leaving it out.
func sectionOfKeys() string {
	var b strings.Builder
	for i, s := range scopes {
		if i > 0 {
			b.WriteByte('\n')
		}
		if s == inBudget {
			fmt.Fprintf(&b, "### Keys %s\n\n%s\n", s.name, s.doc)
			continue
		}
		fmt.Fprintf(&b, "### Keys %s\n\n%s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", s.name, s.doc)
		for _, k := range s.keys {
			if s == inNamed && !slices.Contains(besideCalls, k.name) {
				continue // a rate_limit's
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, k.values(), k.without(), strings.ReplaceAll(k.doc, "*", `\*`))
		}
	}
	return b.String()
}

// values describes the possible values of the key.
func (k *property) values() string {
	switch k.form {
	case asWord:
		return "`" + strings.Join(k.words, "`, `") + "`"
	case asTruth:
		return "`true`, `false`"
	case asNumber:
		return fmt.Sprintf("%d … %d", k.least, k.most)
	case asDollars:
		return dollarsWanted(k.most)
	case asPeriod:
		return "a duration, as `500ms`, `30s`, `1m30s`"
	case asMap:
		return "a " + k.of
	case asCounts:
		return fmt.Sprintf("a map of values to %d … %d", k.least, k.most)
	case asNamed:
		return "a map of names to " + k.of + " maps"
	case asMaps:
		return "a list of " + k.of + " maps"
	case asTexts:
		return "a list of texts"
	case asData:
		return "a map"
	case asPercents:
		return "a list of `1%` … `100%`"
	case asPart:
		return "`0%` … `100%`, as `10%` or `0.5%`"
	default:
		return fmt.Sprintf("text, at most %d bytes", MaxTextBytes)
	}
}

func (k *property) without() string {
	absent := k.absent
	switch {
	case k.required:
		absent = "required"
	case k.form == asTruth && absent == "":
		absent = "`false`"
	case slices.Contains(k.words, absent):
		absent = "`" + absent + "`"
	case absent == "":
		absent = "–"
	}
	switch {
	case !k.ours:
	case len(k.algorithms) > 0 && len(k.algorithms) < len(algorithms())-1:
		absent += "; only for `" + strings.Join(k.algorithms, "`, `") + "`"
	case len(k.algorithms) > 0:
		absent += "; not for `concurrency`"
	default:
		absent += "; needs `algorithm`"
	}
	return absent
}
