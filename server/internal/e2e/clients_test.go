package e2e

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

// TestPythonClient runs the tests of the client for Python against a server, and the programs of
// its page "clients/python/README.md".
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python := testserver.Require(t, "python3")
	w := serve(t, "../../../examples/nginx/rules.yaml", "memory", "--resp", "127.0.0.1:0")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-W", "error", "-B", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = "../../../clients/python"
	cmd.Env = append(cmd.Environ(), "WEIR_URL=weir://"+w.resp, "PYTHONPATH=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
