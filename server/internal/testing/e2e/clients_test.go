package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestPythonClient runs the tests of the client for Python against a server, and the programs of
// its page "clients/python/README.md".
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python := testserver.Require(t, "python3")
	w := serve(t, "../../../../examples/nginx/rules.yaml", "memory", "--resp", "127.0.0.1:0")
	socket := filepath.Join(t.TempDir(), "weir.sock")
	serve(t, "../../../../examples/nginx/rules.yaml", "memory", "--resp", "unix:"+socket)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-W", "error", "-B", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = "../../../../clients/python"
	cmd.Env = append(cmd.Environ(), "WEIR_URL=weir://"+w.resp, "WEIR_UNIX_URL=weir+unix://"+socket, "PYTHONPATH=.")
	if cache, err := os.UserCacheDir(); err == nil {
		// With the frameworks that scripts/setup.sh installs, no test of an adapter is skipped.
		folder := filepath.Join(cache, "weir", "python-frameworks")
		if _, err := os.Stat(filepath.Join(folder, "requirements.txt")); err == nil {
			cmd.Env = append(cmd.Env, "PYTHONPATH=."+string(filepath.ListSeparator)+folder, "WEIR_FRAMEWORKS=1")
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNodeClient runs the tests of the client for Node against servers, and the programs of its
// page "clients/node/README.md".
func TestNodeClient(t *testing.T) {
	t.Parallel()
	node := testserver.Require(t, "node")
	if _, err := os.Stat("../../../../clients/node/node_modules/express"); err != nil {
		if strings.Contains(os.Getenv(testserver.RequireVariable), "node") {
			t.Fatalf("the packages that adapters are for are not installed: run scripts/setup.sh: %v", err)
		}
		t.Log("SKIPPED, ADAPTERS WERE NOT TESTED: their packages are not installed: run scripts/setup.sh")
	}
	const rules, token = "../../../../examples/nginx/rules.yaml", "shop-token-of-32-characters-0123"
	dir := t.TempDir()
	callers := filepath.Join(dir, "callers.yaml")
	text := fmt.Sprintf("callers:\n  - {name: shop, tokens: [%x], verbs: [take, peek], domains: [shop]}\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(callers, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	plain := serve(t, rules, "memory", "--resp", "127.0.0.1:0")
	serve(t, rules, "memory", "--resp", "unix:"+filepath.Join(dir, "weir.sock"))
	secure := serve(t, rules, "memory", "--resp", "127.0.0.1:0", "--resp-tls-cert", cert, "--resp-tls-key", key, "--callers", callers)

	tests, err := filepath.Glob("../../../../clients/node/test/*.test.js")
	if err != nil || len(tests) == 0 {
		t.Fatal(err, tests)
	}
	args := []string{"--test"}
	for _, file := range tests {
		args = append(args, filepath.Join("test", filepath.Base(file)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, args...)
	cmd.Dir = "../../../../clients/node"
	cmd.Env = append(
		cmd.Environ(), "WEIR_URL=weir://"+plain.resp, "WEIR_UNIX_URL=weir+unix://"+filepath.Join(dir, "weir.sock"),
		"WEIR_TLS_URL=weirs://shop:"+token+"@"+secure.resp+"/shop", "WEIR_TLS_CA="+cert,
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
