package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/server/internal/config"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("weir.schema.json", document); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("weir.schema.json")
}

// judge returns what the schema says of a YAML text, which may be none.
func judge(s *jsonschema.Schema, text []byte) error {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	encoded, err := json.Marshal(jsonable(document))
	if err != nil {
		return err
	}
	if document, err = jsonschema.UnmarshalJSON(bytes.NewReader(encoded)); err != nil {
		return err
	}
	return s.Validate(document)
}

// jsonable is a YAML value with texts for keys.
func jsonable(value any) any {
	switch value := value.(type) {
	case map[any]any:
		m := map[string]any{}
		for k, v := range value {
			m[fmt.Sprint(k)] = jsonable(v)
		}
		return m
	case map[string]any:
		for k, v := range value {
			value[k] = jsonable(v)
		}
	case []any:
		for i, v := range value {
			value[i] = jsonable(v)
		}
	case float64:
		if math.IsInf(value, 0) {
			return fmt.Sprint(value) // as which JSON has it
		}
	}
	return value
}

// shipped returns the rules files that are shipped, and those of the tests.
func shipped(t *testing.T) []string {
	t.Helper()
	files := []string{"../rules/demo.yaml"}
	for _, pattern := range []string{"../../../examples/*/rules*.yaml", "testdata/good/*.yaml", "../testing/e2e/testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	return files
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for _, file := range shipped(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := judge(s, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

var modeline = regexp.MustCompile(`(?m)^# yaml-language-server: \$schema=(\S+)$`)

// TestExamplesNameTheSchema wants editors to find the schema of every example.
func TestExamplesNameTheSchema(t *testing.T) {
	t.Parallel()
	schema, err := os.Stat("weir.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range shipped(t) {
		if strings.Contains(file, "testdata") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := modeline.FindSubmatch(text)
		if m == nil {
			t.Errorf("%s names no schema", file)
			continue
		}
		named, err := os.Stat(filepath.Join(filepath.Dir(file), string(m[1])))
		if err != nil || !os.SameFile(schema, named) {
			t.Errorf("%s names %s: %v", file, m[1], err)
		}
	}
}

// beyond are the mistakes that a schema cannot tell, or that a YAML parser has
// lost before it sees the file. Those of quota depend on other numbers, or on other maps.
var beyond = []string{
	"equal entries", "second document", "was itself", "was another's name", "replaces itself", "binary",
	"quota of one", "quota with a small burst", "quota of short windows", "quota of short windows with a large count", "quota for some", "quota and otherwise", "quota and trial",
	"quota in the shadow", "quota for a part", "quota of any key", "quota of a key twice", "quota in two orders",
	"keep in dollars, all", "keep in dollars beyond the burst", "keep in dollars of gcra, too many", "keep in dollars, none", "keep in dollars and lease",
	"keep of all of a budget of dollars", "keep of a budget of tokens in dollars", // of other numbers, or of other maps
	"count with a point", "count with an exponent", // whole numbers, to JSON
}

// TestSchemaAgreesWithTheReader wants the schema to take what the reader takes,
// and to refuse what it refuses, as far as a schema can.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for _, v := range verdicts {
		err := judge(s, []byte(v.text))
		switch {
		case v.want == "" && err != nil:
			t.Errorf("%s: the reader takes it, the schema says %v", v.name, err)
		case v.want != "" && (err == nil) != slices.Contains(beyond, v.name):
			t.Errorf("%s: the schema says %v, the reader says %s", v.name, err, v.want)
		}
	}
}

// TestSchemaRefusesBadDescriptors judges the descriptors of the bad files one by
// one: the schema has to refuse those of its own kind.
func TestSchemaRefusesBadDescriptors(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for file, missed := range map[string]string{"algorithms": "gi", "calendar": "abcdgj", "ours": "f", "unlimited": "c"} {
		text, err := os.ReadFile("testdata/bad/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for line := range strings.Lines(string(text)) {
			entry, ok := strings.CutPrefix(line, "  - {key: ")
			if ok && judge(s, []byte("domain: d\ndescriptors:\n"+line)) == nil {
				got += entry[:1]
			}
		}
		if got != missed {
			t.Errorf("%s: the schema takes the descriptors %q, want %q", file, got, missed)
		}
	}
}
