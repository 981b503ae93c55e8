package cli

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/app"
)

// The messages to a service manager, as sd_notify(3) defines them.
const (
	notifyReady     = "READY=1"
	notifyReloading = "RELOADING=1"
	notifyStopping  = "STOPPING=1"
	notifyStatus    = "STATUS="
)

// notifyPatience is how long a service manager may take to listen.
const notifyPatience = time.Second

// A notifier reports the state of the process to systemd or another service manager.
// Without a socket it does nothing.
type notifier struct {
	socket string // a path, or "@" and an abstract name
	logger *slog.Logger
}

func newNotifier(logger *slog.Logger) notifier {
	return notifier{socket: os.Getenv("NOTIFY_SOCKET"), logger: logger}
}

// attach makes the server's events known.
func (n notifier) attach(o *app.Options) {
	serving := o.Serving
	o.Serving = func(addrs []app.Addr) {
		serving(addrs)
		n.send(notifyReady, notifyStatus+joined(addrs))
	}
	o.Reloaded = func(err error) {
		status := "the rules in the files are in force"
		if err != nil {
			// The error has lines, which would be taken for further words.
			status = "the rules files are wrong, see the log; the last good rules stay in force"
		}
		n.send(notifyReady, notifyStatus+status)
	}
}

func joined(addrs []app.Addr) string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return strings.Join(texts, ", ")
}

// send sends words. Where they do not arrive, that is logged and nothing else:
// what follows from silence is for the manager to say.
func (n notifier) send(words ...string) {
	if n.socket == "" {
		return
	}
	if err := n.write(strings.Join(words, "\n")); err != nil {
		n.logger.Warn("cannot notify the service manager", "words", words, "error", err)
	}
}

func (n notifier) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyPatience)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	if _, err := conn.Write([]byte(message)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
