package cli

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var respLine = regexp.MustCompile(`(?m)^resp (\S+)$`)

// resp says commands, one an argument, to the server as a Redis client does, and
// prints what is answered.
func (s *session) resp(ts *testscript.TestScript, args []string) {
	conn, err := net.DialTimeout("tcp", s.await(ts, &s.stdout, respLine)[1], patience)
	ts.Check(err)
	defer conn.Close()
	ts.Check(conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, strings.Join(args, "\r\n")+"\r\nQUIT\r\n")
	ts.Check(err)
	answer, err := io.ReadAll(conn)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(string(answer), "\r\n", " "))
}
