package app

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// passwordFile returns a file with that text.
func passwordFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// say says commands to the server as a Redis client does.
func say(t *testing.T, app *App, commands string) string {
	t.Helper()
	conn := connect(t, addrOf(app, "resp"))
	if _, err := io.WriteString(conn, commands+"QUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// TestRESPAsksForThePassword, and for another one once the file has changed.
func TestRESPAsksForThePassword(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, "hunter-2\r\n")
	app := start(t, Options{RESP: "127.0.0.1:0", RESPPasswordFile: file})
	if got, want := say(t, app, "PING\r\n*2\r\n$4\r\nAUTH\r\n$8\r\nhunter-2\r\nPING\r\n"), "-NOAUTH Authentication required.\r\n+OK\r\n+PONG\r\n+OK\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	replace(t, file, "another\nthird\n")
	eventually(t, func() error {
		if say(t, app, "AUTH hunter-2\r\n") == "+OK\r\n+OK\r\n" {
			return errors.New("the password that was replaced is right")
		}
		return nil
	})
	for _, password := range []string{"another", "third"} {
		if got := say(t, app, "AUTH "+password+"\r\n"); got != "+OK\r\n+OK\r\n" {
			t.Errorf("%s: %q", password, got)
		}
	}
}

// replace gives a file another text, at once.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
}

func TestRESPIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		field   string
		options Options
	}{
		"no address":     {"resp", Options{RESP: "on"}},
		"port's name":    {"resp", Options{RESP: "127.0.0.1:redis"}},
		"everywhere":     {"resp", Options{RESP: ":0"}},
		"all of IPv4":    {"resp", Options{RESP: "0.0.0.0:0"}},
		"all of IPv6":    {"resp", Options{RESP: "[::]:0"}},
		"some name":      {"resp", Options{RESP: "localhost.example.com:0"}},
		"empty password": {"resp password file", Options{RESP: "0.0.0.0:0", InsecureToken: true, RESPPasswordFile: passwordFile(t, "\n")}},
		"a space":        {"resp password file", Options{RESP: "0.0.0.0:0", InsecureToken: true, RESPPasswordFile: passwordFile(t, "a b\n")}},
	} {
		wantInvalid(t, name, test.options, test.field, "")
	}
	if _, err := New(Options{RESP: "127.0.0.1:0", RESPPasswordFile: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	for _, address := range []string{"localhost:0", "127.0.0.2:0", "[::1]:0", "[::ffff:127.0.0.1]:0"} {
		wantGood(t, address, Options{RESP: address})
	}
}

func TestRESPStops(t *testing.T) {
	t.Parallel()
	app := start(t, Options{RESP: "127.0.0.1:0"})
	conn := connect(t, addrOf(app, "resp"))
	// Answered, so that the connection is known to be accepted.
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	stop(t, app)
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("an idle client hears %q, %v", rest, err)
	}
	if conn, err := net.DialTimeout("tcp", addrOf(app, "resp"), time.Second); err == nil {
		conn.Close()
		t.Error("still listens")
	}
}

func TestRESPOnASocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	app := start(t, Options{RESP: "unix:" + path})
	if addr := addrOf(app, "resp"); addr != "unix:"+path {
		t.Errorf("printed as %q", addr)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "WEIR.TAKE k 5/h\r\n"); err != nil {
		t.Fatal(err)
	}
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || reply != "*11\r\n" {
		t.Errorf("%q, %v", reply, err)
	}
}
