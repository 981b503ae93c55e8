package resp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A wireCase is a conversation with a server whose store is empty, and whose clock stands.
type wireCase struct {
	Name  string
	Rules string
	Steps []wireStep
}

// A wireStep is a command and its reply or error, or advances the clock.
type wireStep struct {
	Send      []string
	Reply     []any  `json:",omitempty"`
	Error     string `json:",omitempty"`
	AdvanceMS int64  `json:"advance_ms,omitempty"`
}

// casesFile is what the clients are tested against, too.
const casesFile = "../../../clients/cases.json"

// TestWireCases holds the server to the commands and replies that all clients are written for.
func TestWireCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ RESP []wireCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.RESP) == 0 {
		t.Fatal("no cases")
	}
	for _, test := range file.RESP {
		for _, proto := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/RESP%d", test.Name, proto), func(t *testing.T) {
				t.Parallel()
				test.run(t, proto)
			})
		}
	}
}

func (test *wireCase) run(t *testing.T, proto int) {
	clock := storetest.NewClock()
	o := Options{Taker: memengine.New(memengine.Options{Now: clock.Now})}
	if test.Rules != "" {
		set, err := rules.Parse("cases.json", []byte(test.Rules))
		if err != nil {
			t.Fatal(err)
		}
		o.Rules = func() *rules.Set { return set }
	}
	c := newSession(newServer(t, o), nopConn{})
	c.proto = proto
	for _, step := range test.Steps {
		clock.Advance(time.Duration(step.AdvanceMS) * time.Millisecond)
		if step.Send == nil {
			continue
		}
		c.in, c.out = append(c.in, bulks(step.Send...)...), c.out[:0]
		c.answer()
		if diff := cmp.Diff(step.want(), string(c.out)); diff != "" {
			t.Errorf("%s\n got %q\n%s", strings.Join(step.Send, " "), c.out, diff)
		}
	}
}

// TestErrorClasses holds the first words of errors to what a client has to know: whether
// anything was charged. Texts do not matter.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"not applied":       {fmt.Errorf("unknown id of secret.internal: %w", weir.ErrNotApplied), "NOTCHARGED no decision: the store refused, nothing was charged, asking again is safe"},
		"misconfigured":     {weir.ErrMisconfigured, "NOTCHARGED no decision: the store is misconfigured, nothing was charged"},
		"ambiguous":         {fmt.Errorf("unknown id: %w", weir.ErrAmbiguous), "AMBIGUOUS no decision: outcome unknown, the charge may have been made"},
		"to be delivered":   {&acts.KeptError{Kind: acts.KindRelease, Reason: weir.ErrNotApplied}, "AMBIGUOUS no decision: the store will get this, repeat it for the numbers"},
		"an odd answer":     {weir.ErrBackend, "AMBIGUOUS no decision: unexpected answer of the store"},
		"no class":          {errors.New("odd\r\n+OK"), "AMBIGUOUS no decision: unexpected answer of the store"},
		"a mistake":         {&weir.InvalidError{Field: "f", Value: "v", Want: "w"}, "ERR f is v: want w"},
		"an unknown id":     {fmt.Errorf("outcome unknown: %w", weir.ErrUnknownID), "UNKNOWNID unknown id: no granted take with it is remembered"},
		"an id used before": {weir.ErrIDReused, "IDREUSED id reused: it belongs to an act with other content"},
		"settled":           {weir.ErrSettled, "SETTLED id settled: its take was settled or refunded already"},
		"released":          {weir.ErrReleased, "SETTLED id released: its take was released already"},
		"too large":         {weir.ErrOverRefund, "ERR refund above what the take was granted"},
		"busy":              {weir.ErrBusyID, "ERR id busy: its take was repeated 32 times; renew the take, or use another id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, Options{Taker: answering{err: test.err}})
			if got, want := converse(t, s, "WEIR.RELEASE k 1/s ID a\r\nPING\r\n"), "-"+test.want+"\r\n+PONG\r\n"; got != want {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
	s := newServer(t, Options{Rules: rules.NotLoaded})
	if got, want := converse(t, s, "WEIR.TAKE k 1/s\r\n"), "-NOTCHARGED no decision: no rate limit configuration loaded\r\n"; got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// TestVerbsAreDecidedTogether wants commands of one pipeline in few calls, answered in order.
func TestVerbsAreDecidedTogether(t *testing.T) {
	t.Parallel()
	var calls []int
	s := newServer(t, Options{Taker: answering{calls: &calls}})
	got := converse(t, s, "WEIR.TAKE a 9/s\r\nCL.THROTTLE a 9 1 1\r\nWEIR.REFUND a 9/s COST 1 AND a 9/min COST 1\r\nWEIR.TAKE a nine\r\nWEIR.PEEK a 9/s\r\n")
	want := lines("*11 :1 :0 :0 :0 :0 :0 :0 +none :9 :1000 :9 *5 :0 :10 :1 :-1 :0 *21 :1 :2 :0 :0 :0 :0 :0 +none :9 :1000 :9 :1 :2 :0 :0 :0 :1 :3 :0 :0 :0") +
		"-ERR limits[0].limit is \"nine\": want " + `a limit such as "100/min", "10/30s burst 20" or "5/s sliding_log"` + "\r\n" +
		lines("*11 :1 :0 :0 :0 :0 :0 :0 +none :9 :1000 :9")
	if got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if fmt.Sprint(calls) != "[4 1]" {
		t.Errorf("acts a call: %d, want [4 1]", calls)
	}
}

// want is the reply as it is on the wire: the same in both versions of the protocol.
func (s *wireStep) want() string {
	if s.Error != "" {
		return "-" + s.Error + "\r\n"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(s.Reply))
	for _, value := range s.Reply {
		switch value := value.(type) {
		case float64:
			fmt.Fprintf(&b, ":%d\r\n", int64(value))
		default:
			fmt.Fprintf(&b, "+%v\r\n", value)
		}
	}
	return b.String()
}

// bulks is a command as clients send it.
func bulks(args ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return text
}
