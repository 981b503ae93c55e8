package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

// inside tells this program that it runs in a network of its own.
const inside = "WEIR_CHAOS_INSIDE"

// TestBlackHole runs itself in a network of its own, where the kernel can be told to
// swallow every packet, of connections that are open and of those that are being
// opened. That needs root.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	f := fault{name: "black hole", promise: "no answer from a store that is away", strike: blackHole, wanted: unknown}
	if os.Getenv(inside) != "" {
		f.run(t)
		judgeOutage(t, "every packet swallowed", blackHoleFor(gone()))
		lateBlackHole.judge(t)
		for _, r := range reported.rows {
			line, _ := json.Marshal([]string{r.fault, r.promise, r.measured, strings.Join(r.red, "; "), strconv.FormatBool(r.unjudged)})
			fmt.Printf("%s%s\n", told, line)
		}
		return
	}
	for _, program := range []string{"unshare", "ip", "tc"} {
		testserver.Require(t, program)
	}
	if err := exec.Command("unshare", "-n", "sh", "-c", "ip link set lo up && "+swallow).Run(); err != nil {
		t.Skipf("no network of its own here: %v", err)
	}
	args := []string{"-n", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", os.Args[0], "-test.run=^TestBlackHole$"}
	if *full {
		args = append(args, "-full")
	}
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	heard := 0
	for line := range strings.Lines(string(out)) {
		var r [5]string
		if text, ok := strings.CutPrefix(line, told); !ok || json.Unmarshal([]byte(text), &r) != nil {
			continue
		}
		heard++
		judged := row{fault: r[0], promise: r[1], measured: r[2], unjudged: r[4] == "true"}
		if r[3] != "" {
			judged.fail(t, "%s", r[3])
		}
		report(judged)
	}
	if err != nil || heard == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// packets swallows them all.
var packets = vanishing{
	func(t *testing.T, _ *testserver.Redis) { shell(t, swallow) },
	func(t *testing.T, _ *testserver.Redis) { shell(t, "tc qdisc del dev lo root") },
}

// lateBlackHole is one of the latenesses, in a network of its own.
var lateBlackHole = lateness{
	"every packet swallowed under 64 callers", vanishedPromise,
	func(t *testing.T) verdict { return vanished(t, packets) },
}

const told = "measured: "

const swallow = "tc qdisc add dev lo root tbf rate 8kbit burst 10 latency 1ms"

func blackHole(w *world) { blackHoleFor(struck)(w) }

func blackHoleFor(d time.Duration) func(*world) {
	return func(w *world) {
		shell(w.t, swallow)
		back := w.history.absent()
		time.Sleep(d)
		back()
		shell(w.t, "tc qdisc del dev lo root")
	}
}

func shell(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}
