package httpapi

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/rules"
)

const userEntry = `"descriptors":[{"entries":[{"key":"user","value":"42"}]}]`

func TestParseTake(t *testing.T) {
	t.Parallel()
	user := [][]rules.Entry{{{Key: "user", Value: "42"}}}
	for name, test := range map[string]struct {
		body string
		want rules.Request
	}{
		"the least":    {`{"domain":"d",` + userEntry + `}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1}},
		"all defaults": {`{"domain":"d",` + userEntry + `,"cost":1,"mode":"all","max_wait_ms":0,"id":"","hold_ms":0}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1}},
		"a cost":       {`{"domain":"d",` + userEntry + `,"cost":7}`, rules.Request{Domain: "d", Descriptors: user, Cost: 7}},
		"a look":       {`{"domain":"d",` + userEntry + `,"cost":0}`, rules.Request{Domain: "d", Descriptors: user}},
		"up to":        {`{"domain":"d",` + userEntry + `,"cost":7,"mode":"up_to"}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1, UpTo: 7}},
		"a look up to": {`{"domain":"d",` + userEntry + `,"cost":0,"mode":"up_to"}`, rules.Request{Domain: "d", Descriptors: user}},
		"white space":  {" \n{\"domain\":\"d\"," + userEntry + "}\n ", rules.Request{Domain: "d", Descriptors: user, Cost: 1}},
		"an empty value": {
			`{"domain":"d","descriptors":[{"entries":[{"key":"","value":""}]}]}`,
			rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{}}}, Cost: 1},
		},
		"two descriptors": {
			`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"},{"key":"b","value":"2"}]},{"entries":[{"key":"c","value":"\u0000é"}]}]}`,
			rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, {{Key: "c", Value: "\x00é"}}}, Cost: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseTake([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseTakeRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, field string }{
		"nothing":               {``, "body"},
		"not JSON":              {`user=42`, "body"},
		"cut short":             {`{"domain":"d"`, "body"},
		"an array":              {`[]`, "body"},
		"trailing data":         {`{"domain":"d",` + userEntry + `}{}`, "body"},
		"trailing garbage":      {`{"domain":"d",` + userEntry + `}x`, "body"},
		"not UTF-8":             {"{\"domain\":\"\xff\"," + userEntry + "}", "body"},
		"an unknown field":      {`{"domain":"d",` + userEntry + `,"costs":1}`, "costs"},
		"an unknown field deep": {`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"b","ttl":1}]}]}`, "ttl"},
		"a domain of 1":         {`{"domain":1,` + userEntry + `}`, "domain"},
		"a cost as text":        {`{"domain":"d",` + userEntry + `,"cost":"1"}`, "cost"},
		"half a cost":           {`{"domain":"d",` + userEntry + `,"cost":0.5}`, "cost"},
		"a cost beyond int64":   {`{"domain":"d",` + userEntry + `,"cost":9223372036854775808}`, "cost"},
		"a negative cost":       {`{"domain":"d",` + userEntry + `,"cost":-1}`, "cost"},
		"a cost out of range":   {`{"domain":"d",` + userEntry + `,"cost":1000000001}`, "cost"},
		"a value of 42":         {`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":42}]}]}`, "descriptors.entries.value"},
		"a value of null":       {`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":null}]}]}`, "descriptors[0].entries[0].value"},
		"no value":              {`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":""},{"key":"user"}]}]}`, "descriptors[0].entries[1].value"},
		"no key":                {`{"domain":"d","descriptors":[{"entries":[{"value":"42"}]}]}`, "descriptors[0].entries[0].key"},
		"no entries":            {`{"domain":"d","descriptors":[{"entries":[]}]}`, "descriptors[0].entries"},
		"entries as an object":  {`{"domain":"d","descriptors":[{"entries":{}}]}`, "descriptors.entries"},
		"a text as descriptor":  {`{"domain":"d","descriptors":["user"]}`, "descriptors"},
		"no descriptors":        {`{"domain":"d"}`, "descriptors"},
		"no domain":             {`{` + userEntry + `}`, "domain"},
		"mode reserve":          {`{"domain":"d",` + userEntry + `,"mode":"reserve"}`, "mode"},
		"another mode":          {`{"domain":"d",` + userEntry + `,"mode":"ALL"}`, "mode"},
		"max wait":              {`{"domain":"d",` + userEntry + `,"max_wait_ms":1}`, "max_wait_ms"},
		"an id":                 {`{"domain":"d",` + userEntry + `,"id":"x"}`, "id"},
		"a hold":                {`{"domain":"d",` + userEntry + `,"hold_ms":1}`, "hold_ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseTake([]byte(test.body))
			invalid := new(weir.InvalidError)
			if !errors.As(err, &invalid) || invalid.Field != test.field {
				t.Fatalf("got %v, want an error that names %s", err, test.field)
			}
		})
	}
}

func FuzzParseTake(f *testing.F) {
	f.Add([]byte(`{"domain":"d",` + userEntry + `,"cost":3,"mode":"up_to"}`))
	f.Add([]byte(`{"domain":"d","descriptors":[{}],"cost":null}`))
	f.Add([]byte(`[{"cost":1e9}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := parseTake(body)
		if err != nil {
			if !errors.Is(err, weir.ErrInvalid) {
				t.Fatalf("%q: error of another class: %v", body, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q: accepted, though not JSON", body)
		}
		if req.Domain == "" || req.Cost < 0 || req.Cost > weir.MaxCost || req.UpTo != 0 && req.Cost != 1 {
			t.Fatalf("%q: accepted as %+v", body, req)
		}
		for _, entries := range req.Descriptors {
			if len(entries) == 0 {
				t.Fatalf("%q: accepted without entries", body)
			}
		}
	})
}
