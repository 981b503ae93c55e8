package resp

import (
	"fmt"
	"strings"
)

// A command is one that the server knows.
type command struct {
	run         func(c *session, args [][]byte) // without the name
	least, most int                             // arguments
	open        bool                            // also before AUTH
	queues      bool                            // its reply may come later, but in order
	foreign     bool                            // the beginning of another protocol
}

// commands returns the commands by their names in lower case.
func commands() map[string]command {
	return map[string]command{
		// What a web page can make a browser send must not reach commands that
		// are hidden in it.
		"post":        {foreign: true},
		"host:":       {foreign: true},
		"cl.throttle": {run: (*session).throttle, most: maxArgs, queues: true},
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
}

// command finds a command, whatever the case of its name.
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

// lower returns the name of an option in lower case; a longer one than there is comes to
// nothing.
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

// command describes no command: clients that ask do so to complete what people
// type.
func (c *session) command(args [][]byte) {
	switch {
	case len(args) > 0 && lower(args[0]) == "count":
		c.integer(int64(c.known()))
	case len(args) > 0 && lower(args[0]) == "docs":
		c.pairs(0)
	default:
		c.array(0)
	}
}

func (c *session) known() int {
	n := 0
	for _, cmd := range c.server.commands {
		if !cmd.foreign {
			n++
		}
	}
	return n
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

// client answers what libraries say about themselves when they connect.
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
		// Nothing is evicted or cached here, so that all of it holds.
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
