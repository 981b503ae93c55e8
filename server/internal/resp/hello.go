package resp

import (
	"crypto/tls"

	"github.com/weirlimit/weir/server/internal/callers"
)

// likeVersion is the version of Redis whose manners these are.
const likeVersion = "7.0.0"

const (
	errName     = "ERR Client names cannot contain spaces, newlines or special characters."
	errPassword = "WRONGPASS invalid username-password pair or user is disabled."
	errNoneSet  = "ERR AUTH called without any password configured: the server asks for none"
	errHello    = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>" +
		" option can be used to authenticate the client and select the RESP protocol version at the same time"
)

// A greeting is what a HELLO asks for.
type greeting struct {
	proto  int
	name   string
	authed bool
	who    *callers.Identity
}

// hello changes nothing unless all that it asks for can be.
func (c *session) hello(args [][]byte) {
	g := greeting{proto: c.proto, name: c.name, authed: c.authed, who: c.who}
	refusal := ""
	if len(args) > 0 {
		if refusal = g.version(args[0]); refusal == "" {
			refusal = g.options(c, args[1:])
		}
	}
	if refusal == "" && !g.authed {
		refusal = errHello
	}
	if refusal != "" {
		c.refuse(refusal)
		return
	}
	c.proto, c.name, c.authed, c.who = g.proto, g.name, g.authed, g.who
	c.welcome()
}

func (g *greeting) version(arg []byte) (refusal string) {
	version, ok := integer(arg)
	switch {
	case !ok:
		return "ERR Protocol version is not an integer or out of range"
	case version != 2 && version != 3:
		return "NOPROTO unsupported protocol version"
	}
	g.proto = int(version)
	return ""
}

func (g *greeting) options(c *session, args [][]byte) (refusal string) {
	for len(args) > 0 {
		switch name := lower(args[0]); {
		case name == "auth" && len(args) >= 3:
			if g.who, refusal = c.check(args[1], args[2]); refusal != "" {
				return refusal
			}
			g.authed, args = true, args[3:]
		case name == "setname" && len(args) >= 2:
			if !nameable(args[1]) {
				return errName
			}
			g.name, args = string(args[1]), args[2:]
		default:
			return "ERR Syntax error in HELLO option " + shown(args[0])
		}
	}
	return ""
}

func (c *session) welcome() {
	c.pairs(7)
	c.bulk("server")
	c.bulk("weir")
	c.bulk("version")
	c.bulk(likeVersion)
	c.bulk("proto")
	c.integer(int64(c.proto))
	c.bulk("id")
	c.integer(c.id)
	c.bulk("mode")
	c.bulk("standalone")
	c.bulk("role")
	c.bulk("master")
	c.bulk("modules")
	c.array(0)
}

func (c *session) auth(args [][]byte) {
	user, password := []byte(callers.DefaultUser), args[len(args)-1]
	if len(args) == 2 {
		user = args[0]
	}
	who, refusal := c.check(user, password)
	if refusal != "" {
		c.refuse(refusal)
		return
	}
	c.authed, c.who = true, who
	c.simple("OK")
}

// check returns whose a user and a password are, or the refusal of those that are not a
// caller's.
func (c *session) check(user, password []byte) (who *callers.Identity, refusal string) {
	if c.server.callers == nil {
		return nil, errNoneSet
	}
	who, known := c.server.callers.Authenticate(&callers.Credentials{
		User: string(user), Token: string(password), Shown: true,
		Remote: c.conn.RemoteAddr().String(), Connection: &c.attempts,
	})
	if !known {
		return nil, errPassword
	}
	return who, ""
}

// recognize authenticates a client by its certificate, if that is a caller's.
func (c *session) recognize() {
	c.recognized = true
	secured, ok := c.conn.(*tls.Conn)
	if !ok || c.server.callers == nil {
		return
	}
	state := secured.ConnectionState()
	if who, known := c.server.callers.Certificate(callers.Genuine(&state)); known {
		c.authed, c.who = true, who
	}
}

// refuse answers AUTH or HELLO with an error. A wrong password is answered late, and
// after several in a row the server hangs up, so that guessing takes time and
// connections. Only this connection waits.
func (c *session) refuse(refusal string) {
	if refusal == errPassword {
		c.flush() // earlier answers do not wait
		c.ending = c.attempts.Exhausted() || c.server.draining.Load()
		c.server.pause(c.server.authDelay)
	}
	c.fail(refusal)
}

// nameable reports whether a client can have that name.
func nameable(name []byte) bool {
	for _, b := range name {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}
