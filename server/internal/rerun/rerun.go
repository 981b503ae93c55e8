// Package rerun runs the tests of a package a second time, under another setting.
package rerun

import (
	"os"
	"os/exec"
	"testing"
)

// With runs all tests of the calling test's package again, in a process of its own that has
// the variable. It runs all of them but the calling test.
func With(t *testing.T, variable, value string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes as long as all other tests of the package")
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.count=1", "-test.timeout=10m", "-test.skip=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+value)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with %s=%s: %v\n%s", variable, value, err, out)
	}
}
