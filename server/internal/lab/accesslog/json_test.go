package accesslog

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzJSON: the fields of an object are those that encoding/json finds.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{jsonLine, `{"time":1,"a":"\"\\","b":{"c":[1,"]",{"d":2}],"e":" x"}}`, `{ "a" : [ ] , "time" : "1" }`, `{"":{"":1}}`, `{"\u0061\"":true}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, line string) {
		// encoding/json replaces what is no text.
		line = strings.NewReplacer(`\ud`, "-", `\uD`, "-").Replace(strings.ToValidUTF8(line, ""))
		var r Record
		_ = new(jsonParser).parse(line, &r)
		var object map[string]any
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		if !json.Valid([]byte(line)) || dec.Decode(&object) != nil {
			if len(r.fields) > 0 {
				t.Fatalf("fields of what is no object: %+v", r.fields)
			}
			return
		}
		for name, value := range object {
			if want, ok := plainText(value); ok {
				// A name may occur twice: encoding/json keeps the last.
				if !r.has(name, want) {
					t.Fatalf("%s: %q is not %q: %+v", line, name, want, r.fields)
				}
			}
		}
	})
}

func plainText(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}

func (r *Record) has(name, value string) bool {
	for _, f := range r.fields {
		if f.name == name && f.value == value {
			return true
		}
	}
	return false
}
