package httpapi

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

const userEntry = `"descriptors":[{"entries":[{"key":"user","value":"42"}]}]`

func TestParseTake(t *testing.T) {
	t.Parallel()
	user := [][]rules.Entry{{{Key: "user", Value: "42"}}}
	for name, test := range map[string]struct {
		body string
		want rules.Request
	}{
		"the least":    {`{"domain":"d",` + userEntry + `}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1, Immediate: true}},
		"all defaults": {`{"domain":"d",` + userEntry + `,"cost":1,"mode":"all","max_wait_ms":0,"id":"","hold_ms":0}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1, Immediate: true}},
		"a cost":       {`{"domain":"d",` + userEntry + `,"cost":7}`, rules.Request{Domain: "d", Descriptors: user, Cost: 7, Immediate: true}},
		"a look":       {`{"domain":"d",` + userEntry + `,"cost":0}`, rules.Request{Domain: "d", Descriptors: user, Immediate: true}},
		"up to":        {`{"domain":"d",` + userEntry + `,"cost":7,"mode":"up_to"}`, rules.Request{Domain: "d", Descriptors: user, Cost: 1, UpTo: 7, Immediate: true}},
		"a look up to": {`{"domain":"d",` + userEntry + `,"cost":0,"mode":"up_to"}`, rules.Request{Domain: "d", Descriptors: user, Immediate: true}},
		"a hold": {
			`{"domain":"d",` + userEntry + `,"id":"x","hold_ms":1500}`,
			rules.Request{Domain: "d", Descriptors: user, Cost: 1, Immediate: true, ID: "x", Hold: 1500 * time.Millisecond},
		},
		"a booking": {
			`{"domain":"d",` + userEntry + `,"cost":3,"mode":"reserve","max_wait_ms":86400000}`,
			rules.Request{Domain: "d", Descriptors: user, Cost: 3, MaxWait: weir.MaxWait},
		},
		"nulls": {
			`{"domain":"d",` + userEntry + `,"cost":null,"mode":null,"max_wait_ms":null,"id":null,"hold_ms":null}`,
			rules.Request{Domain: "d", Descriptors: user, Cost: 1, Immediate: true},
		},
		"white space": {" \n{\"domain\":\"d\"," + userEntry + "}\n ", rules.Request{Domain: "d", Descriptors: user, Cost: 1, Immediate: true}},
		"an empty value": {
			`{"domain":"d","descriptors":[{"entries":[{"key":"","value":""}]}]}`,
			rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{}}}, Cost: 1, Immediate: true},
		},
		"two descriptors": {
			`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"},{"key":"b","value":"2"}]},{"entries":[{"key":"c","value":"\u0000é"}]}]}`,
			rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, {{Key: "c", Value: "\x00é"}}}, Cost: 1, Immediate: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseAct(t, []byte(test.body), acts.KindTake)
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
		"nothing":                {``, "body"},
		"not JSON":               {`user=42`, "body"},
		"cut short":              {`{"domain":"d"`, "body"},
		"an array":               {`[]`, "body"},
		"trailing data":          {`{"domain":"d",` + userEntry + `}{}`, "body"},
		"trailing garbage":       {`{"domain":"d",` + userEntry + `}x`, "body"},
		"not UTF-8":              {"{\"domain\":\"\xff\"," + userEntry + "}", "body"},
		"an unknown field":       {`{"domain":"d",` + userEntry + `,"costs":1}`, "costs"},
		"an unknown field deep":  {`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"b","ttl":1}]}]}`, "descriptors[0].entries[0].ttl"},
		"a field twice":          {`{"domain":"d",` + userEntry + `,"domain":"d"}`, "domain"},
		"a field twice, escaped": {`{"domain":"d",` + userEntry + `,"\u0064omain":"e"}`, "domain"},
		"a value twice":          {`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"b","value":"b"}]}]}`, "descriptors[0].entries[0].value"},
		"a meter twice":          {`{"domain":"d",` + userEntry + `,"costs":{"input":1,"output":1,"input":0}}`, "costs.input"},
		"another case":           {`{"Domain":"d",` + userEntry + `}`, "Domain"},
		"another case, deep":     {`{"domain":"d","descriptors":[{"entries":[{"key":"a","Value":"b"}]}]}`, "descriptors[0].entries[0].Value"},
		"two cases":              {`{"domain":"d",` + userEntry + `,"cost":5,"COST":1}`, "COST"},
		"a letter that folds":    {`{"domain":"d","descriptors":[{"entries":[{"Key":"a","value":"b"}]}]}`, "descriptors[0].entries[0].Key"},
		"a long unknown field":   {`{"` + strings.Repeat("x", 60_000) + `":1}`, strings.Repeat("x", 80) + "…"},
		"a field without a name": {`{"":1}`, `""`},
		"null":                   {`null`, "domain"},
		"nested":                 {strings.Repeat("[", 60_000), "body"},
		"a domain of 1":          {`{"domain":1,` + userEntry + `}`, "domain"},
		"a cost as text":         {`{"domain":"d",` + userEntry + `,"cost":"1"}`, "cost"},
		"half a cost":            {`{"domain":"d",` + userEntry + `,"cost":0.5}`, "cost"},
		"a cost beyond int64":    {`{"domain":"d",` + userEntry + `,"cost":9223372036854775808}`, "cost"},
		"a negative cost":        {`{"domain":"d",` + userEntry + `,"cost":-1}`, "cost"},
		"a cost out of range":    {`{"domain":"d",` + userEntry + `,"cost":1000000001}`, "cost"},
		"a value of 42":          {`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":42}]}]}`, "descriptors.entries.value"},
		"a value of null":        {`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":null}]}]}`, "descriptors[0].entries[0].value"},
		"no value":               {`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":""},{"key":"user"}]}]}`, "descriptors[0].entries[1].value"},
		"no key":                 {`{"domain":"d","descriptors":[{"entries":[{"value":"42"}]}]}`, "descriptors[0].entries[0].key"},
		"no entries":             {`{"domain":"d","descriptors":[{"entries":[]}]}`, "descriptors[0].entries"},
		"entries as an object":   {`{"domain":"d","descriptors":[{"entries":{}}]}`, "descriptors.entries"},
		"a text as descriptor":   {`{"domain":"d","descriptors":["user"]}`, "descriptors"},
		"no descriptors":         {`{"domain":"d"}`, "descriptors"},
		"no domain":              {`{` + userEntry + `}`, "domain"},
		"a wait of nothing":      {`{"domain":"d",` + userEntry + `,"mode":"reserve"}`, "max_wait_ms"},
		"a wait of 0":            {`{"domain":"d",` + userEntry + `,"mode":"reserve","max_wait_ms":0}`, "max_wait_ms"},
		"a wait of days":         {`{"domain":"d",` + userEntry + `,"mode":"reserve","max_wait_ms":86400001}`, "max_wait_ms"},
		"a wait as text":         {`{"domain":"d",` + userEntry + `,"mode":"reserve","max_wait_ms":"1s"}`, "max_wait_ms"},
		"another mode":           {`{"domain":"d",` + userEntry + `,"mode":"ALL"}`, "mode"},
		"a wait of who does not": {`{"domain":"d",` + userEntry + `,"max_wait_ms":1}`, "max_wait_ms"},
		"an id of 7":             {`{"domain":"d",` + userEntry + `,"id":7}`, "id"},
		"a negative hold":        {`{"domain":"d",` + userEntry + `,"hold_ms":-1}`, "hold_ms"},
		"a hold of days":         {`{"domain":"d",` + userEntry + `,"hold_ms":86400001}`, "hold_ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseAct(t, []byte(test.body), acts.KindTake)
			invalid := new(weir.InvalidError)
			if !errors.As(err, &invalid) || invalid.Field != test.field || len(err.Error()) > 1000 {
				t.Fatalf("got %v, want an error that names %s", err, test.field)
			}
		})
	}
}

// TestMisplacedEntries: the error for entries beside the descriptors says where they belong.
func TestMisplacedEntries(t *testing.T) {
	t.Parallel()
	_, err := parseAct(t, []byte(`{"domain":"d","entries":[{"key":"user","value":"42"}]}`), acts.KindTake)
	if err == nil || !strings.Contains(err.Error(), `entries`) || !strings.Contains(err.Error(), "in descriptors: entries") {
		t.Error(err)
	}
}

// TestParseAct reads what undoes and ends takes.
func TestParseAct(t *testing.T) {
	t.Parallel()
	user := [][]rules.Entry{{{Key: "user", Value: "42"}}}
	for rest, want := range map[string]rules.Request{
		`"id":"a","cost":2`:       {Kind: acts.KindRefund, ID: "a", Cost: 2},
		`"id":"a","cost":0`:       {Kind: acts.KindSettle, ID: "a"},
		`"id":"a"`:                {Kind: acts.KindRelease, ID: "a"},
		`"id":"a","hold_ms":null`: {Kind: acts.KindRenew, ID: "a"},
		`"id":"a","hold_ms":2000`: {Kind: acts.KindRenew, ID: "a", Hold: 2 * time.Second},
	} {
		want.Domain, want.Descriptors = "d", user
		got, err := parseAct(t, []byte(`{"domain":"d",`+userEntry+`,`+rest+`}`), want.Kind)
		if err != nil {
			t.Fatalf("%v: %v", want.Kind, err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", want.Kind, diff)
		}
	}
}

func TestParseActRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind        weir.Kind
		rest, field string
	}{
		"refund without id":     {acts.KindRefund, `,"cost":1`, "id"},
		"refund without cost":   {acts.KindRefund, `,"id":"a"`, "cost"},
		"refund of 0":           {acts.KindRefund, `,"id":"a","cost":0`, "cost"},
		"refund beyond costs":   {acts.KindRefund, `,"id":"a","cost":1000000001`, "cost"},
		"settle without id":     {acts.KindSettle, `,"cost":1`, "id"},
		"settle without cost":   {acts.KindSettle, `,"id":"a"`, "cost"},
		"settle below 0":        {acts.KindSettle, `,"id":"a","cost":-1`, "cost"},
		"settle with a hold":    {acts.KindSettle, `,"id":"a","cost":1,"hold_ms":1`, "hold_ms"},
		"settle in a mode":      {acts.KindSettle, `,"id":"a","cost":1,"mode":"all"`, "mode"},
		"settle with a wait":    {acts.KindSettle, `,"id":"a","cost":1,"max_wait_ms":0`, "max_wait_ms"},
		"release without id":    {acts.KindRelease, ``, "id"},
		"release with a cost":   {acts.KindRelease, `,"id":"a","cost":1`, "cost"},
		"renew without id":      {acts.KindRenew, `,"id":""`, "id"},
		"renew with a cost":     {acts.KindRenew, `,"id":"a","cost":1`, "cost"},
		"renew for days":        {acts.KindRenew, `,"id":"a","hold_ms":86400001`, "hold_ms"},
		"renew for less than 0": {acts.KindRenew, `,"id":"a","hold_ms":-1`, "hold_ms"},
	} {
		_, err := parseAct(t, []byte(`{"domain":"d",`+userEntry+test.rest+`}`), test.kind)
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: got %v, want an error that names %s", name, err, test.field)
		}
	}
}
