package resp

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A command is a command of the server.
type command struct {
	run         func(c *session, args [][]byte) // without the name
	least, most int                             // arguments
	open        bool                            // also before AUTH
	queues      bool                            // its reply may come later, but in order
	foreign     bool                            // the beginning of another protocol
	key         int                             // which argument is a key, from 1 on; 0: none
}

// commands returns the commands by their names in lower case.
func commands() map[string]command {
	all := map[string]command{
		// A web page can make a browser send HTTP. Commands that hide in its body must
		// not be executed.
		"post":        {foreign: true},
		"host:":       {foreign: true},
		"cl.throttle": {run: (*session).throttle, most: maxArgs, queues: true, key: 1},
		"hello":       {run: (*session).hello, most: maxArgs, open: true},
		"auth":        {run: (*session).auth, least: 1, most: 2, open: true},
		"reset":       {run: (*session).doReset, open: true},
		"quit":        {run: (*session).quit, most: maxArgs, open: true},
		"ping":        {run: (*session).ping, most: 1},
		"echo":        {run: (*session).ping, least: 1, most: 1},
		"select":      {run: (*session).doSelect, least: 1, most: 1},
		"client":      {run: (*session).client, least: 1, most: maxArgs},
		"command":     {run: (*session).command, most: maxArgs},
		"config":      {run: (*session).config, least: 1, most: maxArgs},
		"info":        {run: (*session).info, most: maxArgs},
	}
	for name := range verbs {
		all[name] = verbCommand(name)
	}
	return all
}

// command finds a command by its name in any case.
func (s *Server) command(name []byte) (command, bool) {
	var lowered [longestName]byte
	if len(name) > longestName {
		return command{}, false
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lowered[i] = b
	}
	cmd, known := s.commands[string(lowered[:len(name)])]
	return cmd, known
}

// longestName is the length of the longest name of a command or option.
const longestName = 16

// lower returns the name of an option in lower case, or "" if it is too long to be one.
func lower(name []byte) string {
	if len(name) > longestName {
		return ""
	}
	return strings.ToLower(string(name))
}

func (c *session) ping(args [][]byte) {
	if len(args) == 0 {
		c.simple("PONG")
		return
	}
	c.bulk(string(args[0]))
}

func (c *session) quit([][]byte) {
	c.simple("OK")
	c.ending = true
}

func (c *session) doReset([][]byte) {
	c.reset()
	c.recognize()
	c.simple("RESET")
}

func (c *session) doSelect(args [][]byte) {
	if n, ok := integer(args[0]); !ok || n != 0 {
		c.fail("ERR DB index is out of range: there is only 0")
		return
	}
	c.simple("OK")
}

// command describes commands: proxies and clients of a cluster ask which argument is the key.
// Others ask for texts, of which there are none, for completion at a prompt.
func (c *session) command(args [][]byte) {
	names := c.known()
	switch {
	case len(args) == 0:
		c.array(len(names))
		for _, name := range names {
			c.describe(name)
		}
	case lower(args[0]) == "count":
		c.integer(int64(len(names)))
	case lower(args[0]) == "docs":
		c.pairs(0)
	case lower(args[0]) == "info":
		c.array(len(args) - 1)
		for _, arg := range args[1:] {
			if name := lower(arg); slices.Contains(names, name) {
				c.describe(name)
			} else {
				c.null()
			}
		}
	case lower(args[0]) == "getkeys":
		c.keys(args[1:])
	default:
		c.fail("ERR unknown subcommand " + shown(args[0]) + " of COMMAND")
	}
}

// keys answers which arguments of a command are keys: proxies and clients of a cluster ask for each
// command whose keys stand at no fixed place.
func (c *session) keys(args [][]byte) {
	if len(args) == 0 {
		c.fail("ERR Unknown subcommand or wrong number of arguments for 'getkeys'")
		return
	}
	name, args := lower(args[0]), args[1:]
	cmd, known := c.server.commands[name]
	verb := verbs[name]
	switch {
	case !known || cmd.foreign:
		c.fail("ERR Invalid command specified")
	case cmd.key == 0:
		c.fail("ERR The command has no key arguments")
	case len(args) < cmd.key || len(args) < cmd.least || len(args) > cmd.most:
		c.fail("ERR Invalid number of arguments specified for command")
	case verb == nil:
		c.array(1)
		c.bulk(string(args[cmd.key-1]))
	default:
		r := &reader{verb: verb, name: name, request: new(rules.Request), args: args}
		if err := r.read(); err != nil {
			c.fail(failure(err))
			return
		}
		c.array(len(r.request.Calls))
		for _, call := range r.request.Calls {
			c.bulk(call.Key)
		}
	}
}

// describe describes a command: name, arity, flags, first, last and step of the keys, and four
// lists that are empty.
func (c *session) describe(name string) {
	cmd := c.server.commands[name]
	arity := -1 - cmd.least
	if cmd.least == cmd.most {
		arity = 1 + cmd.least
	}
	c.array(10)
	c.bulk(name)
	c.integer(int64(arity))
	switch {
	case verbs[name] != nil:
		c.array(3)
		c.simple("write")
		c.simple("fast")
		c.simple("movablekeys")
	case cmd.key > 0:
		c.array(2)
		c.simple("write")
		c.simple("fast")
	default:
		c.array(1)
		c.simple("fast")
	}
	c.integer(int64(cmd.key))
	c.integer(int64(cmd.key))
	c.integer(int64(min(cmd.key, 1)))
	for range 4 {
		c.array(0)
	}
}

// known returns the names of the commands, in order.
func (c *session) known() []string {
	var names []string
	for name, cmd := range c.server.commands {
		if !cmd.foreign {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *session) config(args [][]byte) {
	if lower(args[0]) != "get" {
		c.fail("ERR unknown subcommand " + shown(args[0]) + " of CONFIG")
		return
	}
	c.pairs(0)
}

func (c *session) info([][]byte) {
	c.bulk(fmt.Sprintf("# Server\r\nserver_name:weir\r\nredis_version:%s\r\nredis_mode:standalone\r\n"+
		"# Clients\r\nconnected_clients:%d\r\n# Replication\r\nrole:master\r\n", likeVersion, c.server.Clients()))
}

// client executes CLIENT, with which libraries describe themselves when they connect.
func (c *session) client(args [][]byte) {
	switch name := lower(args[0]); {
	case name == "id":
		c.integer(c.id)
	case name == "info", name == "list":
		c.bulk(fmt.Sprintf("id=%d name=%s resp=%d\n", c.id, c.name, c.proto))
	case name == "getname" && c.name == "":
		c.null()
	case name == "getname":
		c.bulk(c.name)
	case name == "setname" && len(args) == 2:
		c.setName(args[1])
	case name == "setinfo", name == "no-evict", name == "no-touch", name == "tracking":
		// Nothing is evicted or cached here, so all of these hold.
		c.simple("OK")
	default:
		c.fail("ERR unknown subcommand " + shown(args[0]) + " of CLIENT, or wrong number of arguments")
	}
}

func (c *session) setName(name []byte) {
	if !nameable(name) {
		c.fail(errName)
		return
	}
	c.name = string(name)
	c.simple("OK")
}

// likeVersion is the version of Redis that the server imitates.
const likeVersion = "7.0.0"

const (
	errName     = "ERR Client names cannot contain spaces, newlines or special characters."
	errPassword = "WRONGPASS invalid username-password pair or user is disabled."
	errNoneSet  = "ERR AUTH called without any password configured: the server asks for none"
	errHello    = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>" +
		" option can be used to authenticate the client and select the RESP protocol version at the same time"
)

// A greeting is the state that a HELLO asks for.
type greeting struct {
	proto  int
	name   string
	authed bool
	who    *callers.Identity
}

// hello changes the session only if all that it asks for is valid.
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

// check authenticates a user and a password. It returns the refusal of wrong ones.
func (c *session) check(user, password []byte) (who *callers.Identity, refusal string) {
	if c.server.callers == nil {
		return nil, errNoneSet
	}
	who, known := c.server.callers.Authenticate(&callers.Credentials{
		User: string(user), Token: string(password), Shown: true,
		Remote: c.conn.RemoteAddr(), Connection: &c.attempts,
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
// after several in a row the server disconnects, so that guessing takes time and
// connections. Only this connection waits.
func (c *session) refuse(refusal string) {
	if refusal == errPassword {
		c.flush() // earlier answers do not wait
		c.ending = c.attempts.Exhausted() || c.server.draining.Load()
		c.server.pause(c.server.authDelay)
	}
	c.fail(refusal)
}

// maxName is the length of the longest name of a client, which its connection keeps.
const maxName = 4 << 10

// nameable reports whether a client may have that name.
func nameable(name []byte) bool {
	if len(name) > maxName {
		return false
	}
	for _, b := range name {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}
