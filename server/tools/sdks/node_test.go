package sdks

import (
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"
)

// TestNode runs parts of sdks.mjs, which calls with the SDKs for Node.
func TestNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, rules string
		args        []string
	}{
		{"calls", roomy, []string{"--mock"}},
		{"refusals", rules, []string{"--mock"}},
		{"overload", roomy, []string{"--upstream", ""}},
	} {
		t.Run(c.part, func(t *testing.T) {
			t.Parallel()
			if c.part == "overload" {
				c.args[1] = overloaded(t)
			}
			p := start(t, c.rules, c.args...)
			succeed(t, node(t, "sdks.mjs", c.part, p.url))
			switch c.part {
			case "overload":
				p.wants(t, "one", map[string]int64{"requests": 6, "input": 14, "output": 10, "open": 0})
			case "calls":
				p.wants(t, "one", map[string]int64{"requests": 7, "output": 60, "open": 0})
			}
		})
	}
}

// succeed wants a command to end well.
func succeed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v: %s", cmd, err, out)
	}
}

// TestNodeCut wants streams that end with the server to be errors.
func TestNodeCut(t *testing.T) {
	t.Parallel()
	p := start(t, roomy, "--mock", "--drain-delay", "0s", "--drain-timeout", "2s")
	cmd := node(t, "sdks.mjs", "cut", p.url)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	run(t, cmd, "open")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// The script judges the ends, and then waits for that of its input.
	_ = input.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAimock wants another mock of providers metered by the usage that it reports, as JSON
// and as streams, and its failures to cost a request each.
func TestAimock(t *testing.T) {
	t.Parallel()
	upstream := run(t, node(t, "aimock.mjs"), "url")["url"]
	p := start(t, roomy, "--upstream", upstream)
	out, err := node(t, "sdks.mjs", "aimock", p.url).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The script prints what the SDKs were told.
	var want map[string]int64
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want["open"] = 0
	p.wants(t, "one", want)
}
