package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

const (
	commands  = 1_000_000
	announced = 500
)

// TestHostileRESP says what is no request: a protocol error, and the end.
func TestHostileRESP(t *testing.T) {
	s := besiege(t, "--resp", "127.0.0.1:0")
	const victim = "CL.THROTTLE victim 999 1000 86400"
	s.during(func() {
		for _, send := range []string{
			"*1000000\r\n", "*17\r\n", "*-1\r\n", "*99999999999999999999\r\n", "*" + strings.Repeat("1", 1<<20),
			"*1\r\n$999999999\r\n", "*1\r\n$4097\r\n", "*2\r\n$4\r\nPING\r\n$-1\r\n", "*1\r\n$4\r\nPINGPONG\r\n",
			strings.Repeat("*1\r\n", 100_000), "*1\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n%1\r\n", "*1\r\n:1\r\n", "*1\r\n\x00\xff",
			strings.Repeat("x", 1<<20), strings.Repeat("x ", 5000) + "\r\n",
			"POST / HTTP/1.1\r\nHost: weir\r\n\r\n" + victim + "\r\n",
			"*17\r\n" + victim + "\r\n",
		} {
			conn := connect(t, s.resp)
			go func() { _, _ = io.WriteString(conn, send) }()
			said, ended := hungUp(conn)
			// What a client goes on sending for too long may take the answer with it.
			cutOff := said == "" && len(send) > 64<<10
			if !ended || !cutOff && !strings.HasPrefix(said, "-ERR Protocol error") {
				t.Errorf("%.40q: hung up on: %t, after %.80q", send, ended, said)
			}
		}
	})
	for command, want := range map[string]string{
		victim + " -1": "-ERR quantity is ", victim + " 9223372036854775808": "-ERR quantity is ", victim + " x": "-ERR quantity is ",
		"CL.THROTTLE victim -1 1000 86400": "-ERR max_burst is ", "CL.THROTTLE victim 999 0 86400": "-ERR count per period is ",
		"CL.THROTTLE victim 999 1000 0": "-ERR period is ", "CL.THROTTLE victim": "-ERR ", "CL.THROTTLE": "-ERR ", "EVAL x 0": "-ERR unknown command",
		victim + " 0": "*5", "FLUSHALL": "-ERR unknown command", "CL.THROTTLE " + strings.Repeat("k", 4000) + " 1 1 1 0": "*5",
	} {
		if got := s.command(t, command); !strings.HasPrefix(got, want) {
			t.Errorf("%.60s: got %q, want %s…", command, got, want)
		}
	}
	conn := connect(t, s.resp)
	fmt.Fprintf(conn, "%s 0\r\n", victim)
	reader := bufio.NewReader(conn)
	var lines []string
	for range 6 {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	if got := strings.Join(lines, " "); got != "*5 :0 :1000 :1000 :-1 :0" {
		t.Errorf("the victim was charged: %s", got)
	}
}

// command returns the first line of the answer.
func (s *siege) command(t *testing.T, text string) string {
	t.Helper()
	conn := connect(t, s.resp)
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", text)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Errorf("%.60s: %v", text, err)
	}
	return line
}

// TestHostilePipelines sends a million commands at once, to one client that reads
// and one that does not, while many others announce long commands and say no more.
func TestHostilePipelines(t *testing.T) {
	s := besiege(t, "--resp", "127.0.0.1:0", "--resp-max-connections", fmt.Sprint(announced+3))
	s.during(func() {
		for range announced {
			fmt.Fprint(connect(t, s.resp), "*16\r\n$4096\r\n")
		}
		reads, ignores := connect(t, s.resp), connect(t, s.resp)
		var piping sync.WaitGroup
		piping.Go(func() { _, _ = io.WriteString(reads, strings.Repeat("PING\r\n", commands)) })
		piping.Go(func() {
			defer ignores.Close()
			n, err := io.CopyN(ignores, endless("CL.THROTTLE a 1 1 60\r\n"), 1<<30)
			if late, ok := err.(net.Error); err == nil || ok && late.Timeout() {
				t.Errorf("a client that reads nothing was heard for %d bytes: %v", n, err)
			}
		})
		answers := make([]byte, commands*len("+PONG\r\n"))
		if _, err := io.ReadFull(reads, answers); err != nil || strings.Count(string(answers), "+PONG\r\n") != commands {
			t.Errorf("a million answers: %v", err)
		}
		piping.Wait()
		if got := s.command(t, "PING"); got != "+PONG\r\n" {
			t.Errorf("another client: %q", got)
		}
	})
}
