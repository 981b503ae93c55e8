package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupWaitsForApt runs scripts/setup.sh on a machine that has nothing, beside another apt that
// holds the locks at first. It waits, and says in one line what it could not get.
func TestSetupWaitsForApt(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: needs root: setup.sh asks others for sudo")
	}
	bin, home := t.TempDir(), t.TempDir()
	for _, name := range []string{"bash", "cat", "dirname", "env", "grep", "id", "mkdir", "ln", "mktemp", "python3", "rm", "sed", "sleep", "touch", "uname"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	calls := filepath.Join(home, "calls")
	write(t, filepath.Join(bin, "apt-get"), `#!/bin/bash
echo "$*" >>`+calls+`
[ $(grep -c . `+calls+`) -gt 3 ] && exit 0
echo 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1 (apt)' >&2
exit 100
`, 0o755)
	setup, err := filepath.Abs(filepath.Join(root, "scripts/setup.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "bash"), setup)
	// A Python that installs nothing stands for one without a network.
	cmd.Env = []string{"PATH=" + bin, "HOME=" + home, "CC=no-such-compiler", "APT_PAUSE=0", "APT_PATIENCE=600", "PIP_NO_INDEX=1"}
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	said := string(text)
	if n := strings.Count(said, "another apt is running"); n != 1 {
		t.Errorf("it said %d times that it waits, want once:\n%s", n, said)
	}
	if !strings.Contains(said, "\nsetup: MISSING: ") || !strings.Contains(said, "redis-server") {
		t.Errorf("it does not say what is missing:\n%s", said)
	}
	asked := strings.Split(strings.TrimSpace(string(read(t, calls))), "\n")
	if len(asked) != 5 || !strings.Contains(asked[3], "update") || !strings.Contains(asked[4], "install -y") {
		t.Errorf("apt-get was called with %q, want update until it succeeds, then install", asked)
	}
}
