package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
)

type body struct {
	Name  string           `json:"name"`
	Parts []part           `json:"parts"`
	Costs map[string]int64 `json:"costs"`
	Cost  *int64           `json:"cost"`
}

type part struct {
	Key *string `json:"key"`
}

// FuzzDecode: an object that is accepted has each name once, and its structs have none but their
// own, as another decoder reads the text.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"name":"a","parts":[{"key":"b"},{}],"costs":{"x":1},"cost":null}`, ` { "parts" : [ ] , "cost" : -1 } `,
		`{"name":"a","name":"b"}`, `{"Name":"a"}`, `{"n\u0061me":"a","name":"b"}`, `{"parts":[{"KEY":"b"}]}`, `{"costs":{"x":1,"X":2,"x":3}}`, `{"name":"\\\"}"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b body
		err := Decode(text, &b, "")
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err != nil {
			if !errors.Is(err, weir.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if err := strict.Decode(new(body)); err != nil {
			t.Fatalf("%s: accepted, and strictly %v", text, err)
		}
		for _, names := range objects(t, text) {
			slices.Sort(names)
			if len(slices.Compact(slices.Clone(names))) != len(names) {
				t.Fatalf("%s: repeated among %q", text, names)
			}
		}
	})
}

// objects returns the names of each object of a text.
func objects(t *testing.T, text []byte) (all [][]string) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value func()
	value = func() {
		token, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('{'):
			var names []string
			for decoder.More() {
				name, _ := decoder.Token()
				names = append(names, name.(string))
				value()
			}
			_, _ = decoder.Token()
			all = append(all, names)
		case json.Delim('['):
			for decoder.More() {
				value()
			}
			_, _ = decoder.Token()
		}
	}
	value()
	return all
}
