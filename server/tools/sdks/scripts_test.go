package sdks

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// languages are those that the scripts are in.
var languages = map[string]func(t *testing.T, args ...string) *exec.Cmd{
	"node":   func(t *testing.T, args ...string) *exec.Cmd { return node(t, "sdks.mjs", args...) },
	"python": python,
}

// TestScripts runs parts of sdks.mjs and sdks.py, which call with the SDKs for Node and Python.
func TestScripts(t *testing.T) {
	t.Parallel()
	for language, script := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			refusing, calling := start(t, rules, "--mock"), start(t, roomy, "--mock")
			failing := start(t, roomy, "--upstream", overloaded(t))
			succeed(t, script(t, "refusals", refusing.url, "--", "waits", refusing.url, "--", "calls", calling.url, "--", "overload", failing.url))
			calling.wants(t, "one", map[string]int64{"requests": 7, "output": 60, "open": 0})
			failing.wants(t, "one", map[string]int64{"requests": 6, "input": 14, "output": 10, "open": 0})
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

// TestScriptsCut wants streams that end with the server to be errors.
func TestScriptsCut(t *testing.T) {
	t.Parallel()
	for language, script := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			p := start(t, roomy, "--mock", "--drain-delay", "0s", "--drain-timeout", "2s")
			cmd := script(t, "cut", p.url)
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			run(t, cmd, "open")
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			// The script judges the ends, and then may wait for that of its input.
			_ = input.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAimock wants another mock of providers metered by the usage that it reports, as JSON
// and as streams, and its failures to cost a request each.
func TestAimock(t *testing.T) {
	t.Parallel()
	upstream := run(t, node(t, "aimock.mjs"), "url")["url"]
	p := start(t, roomy, "--upstream", upstream)
	want := printed(t, node(t, "sdks.mjs", "aimock", p.url))[0]
	want["open"] = 0
	p.wants(t, "one", want)
}

// printed runs a script that prints what the SDKs were told, a line for each part.
func printed(t *testing.T, cmd *exec.Cmd) (told []map[string]int64) {
	t.Helper()
	out, err := cmd.Output()
	if failure := new(exec.ExitError); errors.As(err, &failure) {
		t.Fatalf("%v: %v: %s%s", cmd, err, out, failure.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var part map[string]int64
		if err := json.Unmarshal([]byte(line), &part); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		told = append(told, part)
	}
	return told
}
