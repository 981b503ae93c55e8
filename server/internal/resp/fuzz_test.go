package resp

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// FuzzParse holds the reader of requests to its bounds, and to one answer
// however the input arrives.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"PING\r\n", lines("*2 $4 ECHO $2 hi"), lines("*1000000"), lines("*1 $999999999"), lines("*1 *1 *1"),
		"*2\r\n$4\r\nECHO", lines("*-1"), lines("$4 PING"), "*1\r\n$\r\n", "*\r\n", "\r\n\r\n", "a 'b'\r\n", "*1\r\n$0\r\n\r\n",
		lines("*6 $11 CL.THROTTLE $1 a $1 1 $1 1 $1 1 $1 1"), lines("*01 $+4 PING"),
	} {
		f.Add([]byte(seed), uint16(1))
	}
	f.Fuzz(func(t *testing.T, input []byte, step uint16) {
		var whole [][]byte
		var err error
		fuzztest.Within(t, fuzztest.MostBytes, len(input), func() { whole, err = requests(input) })
		var pieces [][]byte
		var session session
		for rest := input; len(rest) > 0; {
			session.room()
			if cap(session.in) > max(inputBytes, maxRequest) {
				t.Fatalf("the buffer has %d bytes", cap(session.in))
			}
			n := min(int(step)+1, len(rest), cap(session.in)-len(session.in))
			if n == 0 {
				t.Fatalf("no room for more in %d bytes, and no request or error", cap(session.in))
			}
			session.in, rest = append(session.in, rest[:n]...), rest[n:]
			args, size, pieceErr := parse(session.in, session.args[:0])
			for ; size > 0; args, size, pieceErr = parse(session.in, session.args[:0]) {
				pieces = append(pieces, flat(args))
				session.in = session.in[:copy(session.in, session.in[size:])]
			}
			if pieceErr != nil {
				if err == nil || pieceErr.Error() != err.Error() {
					t.Fatalf("in pieces: %v, at once: %v", pieceErr, err)
				}
				err = nil
				break
			}
		}
		if err != nil || !bytes.Equal(bytes.Join(whole, nil), bytes.Join(pieces, nil)) {
			t.Fatalf("at once %q %v, in pieces of %d %q", whole, err, step, pieces)
		}
	})
}

// requests returns the requests that input begins with.
func requests(input []byte) (found [][]byte, err error) {
	var args [maxArgs][]byte
	for {
		request, size, err := parse(input, args[:0])
		if size == 0 || err != nil {
			return found, err
		}
		found = append(found, flat(request))
		input = input[size:]
	}
}

// flat copies the arguments, checked, with an end behind each.
func flat(args [][]byte) []byte {
	if len(args) > maxArgs {
		panic("too many arguments")
	}
	text := []byte{'('}
	for _, arg := range args {
		if len(arg) > maxRequest {
			panic("an argument is too long")
		}
		text = append(append(text, arg...), ',')
	}
	return append(text, ')')
}

// FuzzSession holds all of a session to: no panic, and replies of one wire
// format whatever comes.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{
		"HELLO 3 AUTH default secret SETNAME a\r\nPING\r\n", "AUTH secret\r\nCL.THROTTLE a 1 2 3 4\r\nQUIT\r\n",
		"AUTH secret\r\nCLIENT GETNAME\r\nINFO\r\nCOMMAND DOCS\r\nCONFIG GET x\r\nRESET\r\n", "AUTH secret\r\nCL.THROTTLE a 9 2 3 4 KEEP 5\r\ncl.throttle keep 9 2 3 keep 9\r\nCL.THROTTLE a 9 2 3 KEEP 10\r\nCL.THROTTLE a 9 2 KEEP 1\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "AUTH secret\r\nWEIR.TAKE a 9/s COST 2 KEEP 1 AND b n=1/day ID x HOLD 9 IN d\r\nWEIR.SETTLE a 9/s COST 1 ID x\r\nWEIR.REFUND a 9/s COST 1 AND b 9/s COST 1\r\n",
		"AUTH secret\r\nCOMMAND\r\nWEIR.RESET a 9/s\r\nWEIR.TAKE a 9/s UPTO 4\r\nWEIR.TAKE a 9/s WAIT 9\r\nWEIR.RENEW a 9/s ID 1\r\nCL.THROTTLE a 1 1 1 ID b KEEP 1\r\n",
	} {
		f.Add([]byte(seed))
	}
	s := newServer(f, Options{Callers: protected(f, nil), Taker: answering{}})
	s.authDelay = 0
	f.Fuzz(func(t *testing.T, input []byte) {
		c := newSession(s, nopConn{})
		fuzztest.Within(t, fuzztest.MostBytes, len(input), func() {
			c = newSession(s, nopConn{})
			c.in = bytes.Clone(input[:min(len(input), maxRequest)])
			c.answer()
		})
		if n := unanswered(c.out); n != 0 {
			t.Fatalf("%q is answered by %q, which ends %d values short", input, c.out, n)
		}
	})
}

// unanswered reads replies and returns how many values lack at their end; it
// panics at what is no reply.
func unanswered(out []byte) int {
	missing := 0
	for len(out) > 0 {
		line, rest, ended := bytes.Cut(out, []byte("\r\n"))
		if !ended {
			panic("a line without an end")
		}
		missing = max(0, missing-1)
		out = rest
		n, _ := integer(line[1:])
		switch line[0] {
		case '*':
			missing += int(n)
		case '%':
			missing += 2 * int(n)
		case '$':
			if n >= 0 {
				out = rest[n+2:]
			}
		case '+', '-', ':', '_':
		default:
			panic("no reply begins like this")
		}
	}
	return missing
}
