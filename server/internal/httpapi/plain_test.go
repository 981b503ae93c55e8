package httpapi

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// parseAct reads a body as a handler does. A body that is read without encoding/json has to be
// the same request, or the same mistake, to encoding/json.
func parseAct(t testing.TB, text []byte, kind weir.Kind) (*rules.Request, error) {
	t.Helper()
	var by, std posted
	err := std.decode(text)
	if !by.readPlain(text) {
		if err != nil {
			return nil, err
		}
		return std.toRequest(kind)
	}
	if err != nil {
		t.Fatalf("%q is read, and is wrong: %v", text, err)
	}
	want, wrong := std.toRequest(kind)
	got, err := by.toRequest(kind)
	if wrong != nil || err != nil {
		if wrong == nil || err == nil || wrong.Error() != err.Error() {
			t.Fatalf("%q: %v, want %v", text, err, wrong)
		}
		return nil, err
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q is another request (-want +got):\n%s", text, diff)
	}
	return got, nil
}

const fourEntries = `{"entries":[{"key":"a","value":"1"},{"key":"b","value":"2"},{"key":"c","value":"3"},{"key":"d","value":"4"}]}`

// TestReadPlain: the bodies of nearly all programs are read without encoding/json, and no others.
func TestReadPlain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want bool
	}{
		"a take":                 {`{"domain":"d",` + userEntry + `}`, true},
		"a take with spaces":     {"\r\n { \"domain\" : \"d\" ,\t" + strings.ReplaceAll(userEntry, ",", " ,\n ") + " } \n", true},
		"a hold":                 {`{"domain":"d",` + userEntry + `,"cost":3,"id":"x","hold_ms":1500,"dry":false}`, true},
		"a booking":              {`{"mode":"reserve","max_wait_ms":5,"domain":"d",` + userEntry + `}`, true},
		"a settlement":           {`{"domain":"d",` + userEntry + `,"id":"x","cost":0,"record":false}`, true},
		"a limit":                {`{"limits":[{"key":"k","limit":"5/min","name":"n","cost":999999999999999999,"keep":1}]}`, true},
		"bytes above ASCII":      {`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"Zoë"}]}]}`, true},
		"no parts":               {`{"domain":"d","descriptors":[],"limits":[]}`, true},
		"most parts":             {`{"domain":"d","descriptors":[` + fourEntries + `,` + fourEntries + `],"limits":[{"key":"a","limit":"1/s"},{"key":"b","limit":"1/s"},{"key":"c","limit":"1/s"},{"key":"d","limit":"1/s"}]}`, true},
		"nothing":                {`{}`, true},
		"an entry too many":      {`{"domain":"d","descriptors":[` + fourEntries + `,` + fourEntries + `,{"entries":[{"key":"a","value":"1"}]}]}`, false},
		"five limits":            {`{"limits":[{"key":"a","limit":"1/s"},{"key":"b","limit":"1/s"},{"key":"c","limit":"1/s"},{"key":"d","limit":"1/s"},{"key":"e","limit":"1/s"}]}`, false},
		"an escape":              {`{"domain":"\u0064",` + userEntry + `}`, false},
		"an escaped name":        {`{"\u0064omain":"d",` + userEntry + `}`, false},
		"a control byte":         {"{\"domain\":\"a\x01\"," + userEntry + "}", false},
		"not UTF-8":              {"{\"domain\":\"\xff\"," + userEntry + "}", false},
		"a null":                 {`{"domain":"d",` + userEntry + `,"cost":null}`, false},
		"costs":                  {`{"domain":"d",` + userEntry + `,"costs":{"input":1}}`, false},
		"a negative cost":        {`{"domain":"d",` + userEntry + `,"cost":-1}`, false},
		"a cost from 0":          {`{"domain":"d",` + userEntry + `,"cost":01}`, false},
		"a cost of nothing":      {`{"domain":"d",` + userEntry + `,"cost":}`, false},
		"an exponent":            {`{"domain":"d",` + userEntry + `,"cost":1e2}`, false},
		"19 digits":              {`{"domain":"d",` + userEntry + `,"cost":1000000000000000000}`, false},
		"another case":           {`{"Domain":"d",` + userEntry + `}`, false},
		"a field twice":          {`{"domain":"d",` + userEntry + `,"domain":"d"}`, false},
		"a key twice":            {`{"domain":"d","descriptors":[{"entries":[{"key":"a","key":"a","value":"b"}]}]}`, false},
		"all numbers, one twice": {`{"domain":"d","cost":1,"hold_ms":1,"max_wait_ms":1,"limits":[{"key":"a","limit":"1/s","cost":1},{"key":"b","limit":"1/s","cost":1},{"key":"c","limit":"1/s","cost":1},{"key":"d","limit":"1/s","cost":1}],"cost":1}`, false},
		"a comma too many":       {`{"domain":"d",` + userEntry + `,}`, false},
		"a comma before":         {`{,"domain":"d",` + userEntry + `}`, false},
		"cut short":              {`{"domain":"d",` + userEntry, false},
		"a text cut short":       {`{"domain":"d`, false},
		"a word cut short":       {`{"dry":tru`, false},
		"more behind it":         {`{"domain":"d",` + userEntry + `}x`, false},
		"a byte of 0 behind":     {`{"domain":"d",` + userEntry + "}\x00", false},
		"an array":               {`[]`, false},
		"long":                   {`{"domain":"d",` + userEntry + `}` + strings.Repeat(" ", maxPlain), false},
	} {
		if got := new(posted).readPlain([]byte(test.body)); got != test.want {
			t.Errorf("%s: read %t, want %t", name, got, test.want)
		}
		for _, kind := range []weir.Kind{acts.KindTake, acts.KindSettle, acts.KindRelease} {
			_, _ = parseAct(t, []byte(test.body), kind) // compares
		}
	}
}

// answerText are texts that encoding/json writes in several ways.
var answerText = []string{"", "a", "user,path", "5/min", `"`, `\`, "<b>&", "\x00", "\x7f", "\xff", "é", "\u2028", "\n"}

// TestAnswersAsJSON: answers are what encoding/json writes.
func TestAnswersAsJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string { return answerText[random.IntN(len(answerText))] }
	number := func() int64 { return []int64{0, 1, -1, 1 << 40, -1 << 63, 1<<63 - 1}[random.IntN(6)] }
	is := func() bool { return random.IntN(2) == 0 }
	for range 2000 {
		l := limitAnswer{
			text(), text(), text(), number(), number(), number(), number(), number(), number(), number(), text(),
			is(), text(), text(), number(), int(number()), is(), is(), is(),
		}
		want, err := json.Marshal(l)
		if got := l.appendJSON(nil); err != nil || string(got) != string(want) {
			t.Fatalf("wrote %s, want %s, %v", got, want, err)
		}
		v := verdict{allowed: is(), granted: number(), id: text()}
		want, err = json.Marshal(actAnswer{v.allowed, v.granted, v.id, []limitAnswer{}})
		if got := v.appendJSON(nil); err != nil || string(got) != string(want)+"\n" {
			t.Fatalf("wrote %s, want %s, %v", got, want, err)
		}
	}
}
