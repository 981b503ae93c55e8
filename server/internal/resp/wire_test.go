package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

func TestReplies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ send, want2, want3 string }{
		"ping":            {"PING\r\n", "+PONG\r\n", ""},
		"ping, array":     {lines("*1 $4 pInG"), "+PONG\r\n", ""},
		"ping, words":     {lines("*2 $4 PING $5 a\x00\r\nb"), lines("$5 a\x00\r\nb"), ""},
		"echo":            {"ECHO hi\n", lines("$2 hi"), ""},
		"echo of nothing": {lines("*2 $4 ECHO $0") + "\r\n", lines("$0") + "\r\n", ""},
		"nothing at all":  {"\r\n \t\r\n" + lines("*0"), "", ""},
		"select":          {"SELECT 0\r\nSELECT 1\r\nSELECT x\r\n", "+OK\r\n-ERR DB index is out of range: there is only 0\r\n-ERR DB index is out of range: there is only 0\r\n", ""},
		"command": {
			"COMMAND INFO Weir.take get ping\r\nCOMMAND GET\r\n",
			lines("*3 *10 $9 weir.take :-3 *3 +write +fast +movablekeys :1 :1 :1 *0 *0 *0 *0 $-1 *10 $4 ping :-1 *1 +fast :0 :0 :0 *0 *0 *0 *0") + "-ERR unknown subcommand \"GET\" of COMMAND\r\n",
			lines("*3 *10 $9 weir.take :-3 *3 +write +fast +movablekeys :1 :1 :1 *0 *0 *0 *0 _ *10 $4 ping :-1 *1 +fast :0 :0 :0 *0 *0 *0 *0") + "-ERR unknown subcommand \"GET\" of COMMAND\r\n",
		},
		"command getkeys": {
			"COMMAND GETKEYS Weir.Take a 9/s cost 2 and and 9/s KEEP 1 AND c 1/d ID x IN d\r\nCOMMAND GETKEYS weir.settle a 9/s COST 1 ID and\r\nCOMMAND GETKEYS cl.throttle b 1 1 1\r\n",
			lines("*3 $1 a $3 and $1 c *1 $1 a *1 $1 b"), "",
		},
		"command getkeys of none": {
			"COMMAND GETKEYS\r\nCOMMAND GETKEYS get a\r\nCOMMAND GETKEYS POST a\r\nCOMMAND GETKEYS ping\r\nCOMMAND GETKEYS weir.take a\r\nCOMMAND GETKEYS weir.take a 9/s AND b\r\n",
			"-ERR Unknown subcommand or wrong number of arguments for 'getkeys'\r\n-ERR Invalid command specified\r\n-ERR Invalid command specified\r\n" +
				"-ERR The command has no key arguments\r\n-ERR Invalid number of arguments specified for command\r\n" +
				"-ERR Usage: weir.take " + verbs["weir.take"].usage + "\r\n", "",
		},
		"command docs":     {"COMMAND DOCS\r\n", lines("*0"), lines("%0")},
		"command count":    {"COMMAND COUNT\r\n", lines(":20"), ""},
		"config get":       {"CONFIG GET save\r\n", lines("*0"), lines("%0")},
		"config set":       {"CONFIG SET save x\r\n", "-ERR unknown subcommand \"SET\" of CONFIG\r\n", ""},
		"client names":     {"CLIENT GETNAME\r\nCLIENT SETNAME me\r\nCLIENT GETNAME\r\n", lines("$-1 +OK $2 me"), lines("_ +OK $2 me")},
		"client name":      {lines("*3 $6 CLIENT $7 SETNAME $3 a\nb"), "-" + errName + "\r\n", ""},
		"client id":        {"CLIENT ID\r\n", lines(":1"), ""},
		"client libraries": {"CLIENT SETINFO LIB-NAME x\r\nCLIENT TRACKING ON OPTIN\r\nCLIENT NO-EVICT on\r\n", lines("+OK +OK +OK"), ""},
		"client, unknown":  {"CLIENT REPLY OFF\r\n", "-ERR unknown subcommand \"REPLY\" of CLIENT, or wrong number of arguments\r\n", ""},
		"client, nothing":  {"CLIENT\r\n", "-ERR wrong number of arguments for \"CLIENT\"\r\n", ""},
		"reset":            {"CLIENT SETNAME me\r\nRESET\r\nCLIENT GETNAME\r\n", lines("+OK +RESET $-1"), ""},
		"unknown":          {"GET a\r\n", "-ERR unknown command \"GET\"\r\n", ""},
		"unknown, binary":  {lines("*1 $3 \x00\r\n"), "-ERR unknown command \"\\x00\\r\\n\"\r\n", ""},
		"unknown, long":    {strings.Repeat("x", 100) + "\r\n", "-ERR unknown command \"" + strings.Repeat("x", shownBytes) + "\"…\r\n", ""},
		"hello, junk":      {"HELLO x\r\n", "-ERR Protocol version is not an integer or out of range\r\n", ""},
		"hello, future":    {"HELLO 4\r\nHELLO 1\r\n", strings.Repeat("-NOPROTO unsupported protocol version\r\n", 2), ""},
		"hello, option":    {"HELLO 3 AUTH x\r\nCOMMAND DOCS\r\n", "-ERR Syntax error in HELLO option \"AUTH\"\r\n*0\r\n", "-ERR Syntax error in HELLO option \"AUTH\"\r\n%0\r\n"},
		"auth, none asked": {"AUTH secret\r\n", "-" + errNoneSet + "\r\n", ""},
		"throttle":         {"CL.THROTTLE a 2 10 60\r\n", lines("*5 :0 :3 :2 :-1 :6"), ""},
		"throttle, array":  {lines("*6 $11 cl.throttle $1 a $1 2 $2 10 $2 60 $1 3"), lines("*5 :0 :3 :0 :-1 :18"), ""},
		"throttle, fast": {
			"CL.THROTTLE a 999999999 1000000000 1 1000000000\r\nCL.THROTTLE a 999999999 1000000000 1\r\n",
			lines("*5 :0 :1000000000 :0 :-1 :1 *5 :1 :1000000000 :0 :1 :1"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := converse(t, newServer(t, Options{}), test.send); got != test.want2 {
				t.Errorf("RESP2:\n got %q\nwant %q", got, test.want2)
			}
			if test.want3 == "" {
				test.want3 = test.want2
			}
			got := converse(t, newServer(t, Options{}), "HELLO 3\r\n"+test.send)
			if _, got, _ = strings.Cut(got, "modules\r\n*0\r\n"); strings.Contains(test.send, "RESET") {
				test.want3 = test.want2 // which is its point
			}
			if got != test.want3 {
				t.Errorf("RESP3:\n got %q\nwant %q", got, test.want3)
			}
		})
	}
}

func TestHello(t *testing.T) {
	t.Parallel()
	body := func(proto int) string {
		return lines(fmt.Sprintf("$6 server $4 weir $7 version $5 7.0.0 $5 proto :%d $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0", proto))
	}
	for _, test := range []struct{ send, want string }{
		{"HELLO\r\n", "*14\r\n" + body(2)},
		{"HELLO 2\r\n", "*14\r\n" + body(2)},
		{"HELLO 3\r\n", "%7\r\n" + body(3)},
		{"HELLO 3\r\nHELLO\r\n", "%7\r\n" + body(3) + "%7\r\n" + body(3)},
		{"HELLO 3\r\nHELLO 2\r\n", "%7\r\n" + body(3) + "*14\r\n" + body(2)},
		{"HELLO 3 SETNAME me\r\nCLIENT GETNAME\r\n", "%7\r\n" + body(3) + lines("$2 me")},
	} {
		if got := converse(t, newServer(t, Options{}), test.send); got != test.want {
			t.Errorf("%q:\n got %q\nwant %q", test.send, got, test.want)
		}
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	got := converse(t, newServer(t, Options{}), "INFO server\r\n")
	for _, want := range []string{"redis_version:7.0.0\r\n", "connected_clients:1\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestThrottleRefusesArguments(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	for send, want := range map[string]string{
		"a":                                   usage,
		"a 1 2":                               usage,
		"a 1 2 3 4 5":                         usage,
		"":                                    usage,
		"a -1 1 1":                            `ERR max_burst is "-1": want 0 … 999999999`,
		"a 1e3 1 1":                           `ERR max_burst is "1e3": want 0 … 999999999`,
		"a 0 0 1":                             `ERR count per period is "0": want 1 … 1000000000`,
		"a 0 -5 1":                            `ERR count per period is "-5": want 1 … 1000000000`,
		"a 0 1 0":                             `ERR period is "0": want 1 … 31622400`,
		"a 0 1 1.5":                           `ERR period is "1.5": want 1 … 31622400`,
		"a 0 1 1 -1":                          `ERR quantity is "-1": want 0 … 1000000000`,
		"a 0 1 1 x":                           `ERR quantity is "x": want 0 … 1000000000`,
		"a 9223372036854775807 1 1":           `ERR max_burst is "9223372036854775807": want 0 … 999999999`,
		"a 0 1 99999999999999999999999999999": `ERR period is "99999999999999999999999999999": want 1 … 31622400`,
		"a 0 1 1 18446744073709551617":        `ERR quantity is "18446744073709551617": want 0 … 1000000000`,
		"a 999999999 999999937 31622399":      `ERR burst is 1000000000: want a smaller burst, or a rounder count: this one cannot be counted exactly at 999999937/8783h59m59s`,
		"a 0 1 1 " + strings.Repeat("9", 100): `ERR quantity is "` + strings.Repeat("9", shownBytes) + `"…: want 0 … 1000000000`,
	} {
		if got := converse(t, s, "CL.THROTTLE "+send+"\r\n"); got != "-"+want+"\r\n" {
			t.Errorf("%s:\n got %q\nwant %q", send, got, want)
		}
	}
	if got := converse(t, s, "CL.THROTTLE a 0 1 1 0\r\n"); got != lines("*5 :0 :1 :1 :-1 :0") {
		t.Errorf("a refused command has charged: %q", got)
	}
}

func TestThrottleKeysAreAnyBytes(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	seen := map[string]bool{}
	for _, key := range []string{"", "a", "a\x00", "a\r\n", "{a}", "}", "\xff", "\xff\xfe", "cl.throttle;a", strings.Repeat("k", 60<<10)} {
		if seen[key] {
			t.Fatalf("%q is there twice", key)
		}
		seen[key] = true
		send := fmt.Sprintf("*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$1\r\n0\r\n$1\r\n1\r\n$2\r\n60\r\n", len(key), key)
		if got, want := converse(t, s, send+send), lines("*5 :0 :1 :0 :-1 :60 *5 :1 :1 :0 :60 :60"); got != want {
			t.Errorf("%q:\n got %q\nwant %q", key, got, want)
		}
	}
}

// TestLongArgumentsAreErrors wants a key beyond its bound to be an error like any other: the
// commands before and after it in a pipeline are answered.
func TestLongArgumentsAreErrors(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	for _, test := range []struct {
		send []string
		want string
	}{
		{[]string{"CL.THROTTLE", "k", "1", "1", "1", "1", "ID", strings.Repeat("i", 5000)}, "ERR ID is 5000 bytes: want 1 … 128 bytes"},
		{[]string{"WEIR.TAKE", "k", "1/s", "ID", strings.Repeat("i", 5000)}, "ERR id is 5000 bytes: want at most 128 bytes"},
		{[]string{"WEIR.TAKE", "k", "1/s", "IN", strings.Repeat("d", 5000)}, "ERR domain is 5000 bytes: want at most 1024 bytes"},
		{[]string{"ECHO", strings.Repeat("e", 5000)}, `ERR an argument of "ECHO" is too long: want at most 4096 bytes`},
		{[]string{"WEIR.TAKE", "k", strings.Repeat("9", 5000)}, `ERR limits[0].limit is "` + strings.Repeat("9", 128) + `"…: want at most 128 bytes`},
	} {
		want := lines("*5 :0 :1 :0 :-1 :60") + "-" + test.want + "\r\n" + lines("*5 :1 :1 :0 :60 :60")
		if got := converse(t, s, "CL.THROTTLE a 0 1 60\r\n"+bulks(test.send...)+"CL.THROTTLE a 0 1 60\r\n"); got != want {
			t.Errorf("%.40q:\n got %q\nwant %q", test.send, got, want)
		}
		s = newServer(t, Options{}) // another store
	}
}

func TestFewLimitsAreKept(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	for i := range 2*maxLimits + 1 {
		if got := throttled(s, fmt.Sprintf("a %d 1 1 0", i)); !strings.HasPrefix(got, lines(fmt.Sprintf("*5 :0 :%d", i+1))) {
			t.Fatalf("limit %d: %q", i, got)
		}
		if n := len(s.limits.compiled); n > maxLimits {
			t.Fatalf("%d limits are kept", n)
		}
	}
	p := params{burst: 1, count: 1, seconds: 1}
	first, err := s.limits.get(p)
	if again, _ := s.limits.get(p); err != nil || again != first {
		t.Errorf("a limit is compiled again: %v", err)
	}
}

func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"not applied":   {fmt.Errorf("dial secret.internal: %w", weir.ErrNotApplied), "no decision: the store refused, nothing was charged, asking again is safe"},
		"ambiguous":     {weir.ErrAmbiguous, "no decision: outcome unknown, the charge may have been made"},
		"misconfigured": {weir.ErrMisconfigured, "no decision: the store is misconfigured, nothing was charged"},
		"backend":       {weir.ErrBackend, "no decision: unexpected answer of the store"},
		"no class":      {errors.New("odd\r\n+OK"), "no decision: unexpected answer of the store"},
		"invalid":       {fmt.Errorf("a\r\nb: %w", weir.ErrInvalid), "a  b: weir: invalid request"},
		"invalid field": {&weir.InvalidError{Field: "f", Value: "v", Want: "w"}, "f is v: want w"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, Options{Taker: answering{err: test.err}})
			want := "-ERR " + test.want + "\r\n+PONG\r\n"
			if got := converse(t, s, "CL.THROTTLE a 1 1 1\r\nPING\r\n"); got != want {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
}
