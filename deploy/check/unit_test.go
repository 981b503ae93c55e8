package check

import (
	"bufio"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const (
	goarch = runtime.GOARCH
	unit   = root + "/deploy/package/weir.service"
	// most is the exposure that systemd may see, of 100.
	most = "15"
)

// settings returns what a unit says, by key; keys repeat.
func settings(t *testing.T, path string) map[string][]string {
	t.Helper()
	said := map[string][]string{}
	for scanner := bufio.NewScanner(strings.NewReader(string(read(t, path)))); scanner.Scan(); {
		if key, value, ok := strings.Cut(scanner.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			said[key] = append(said[key], value)
		}
	}
	return said
}

// TestUnitVerified: systemd understands the unit, and finds it confined.
func TestUnitVerified(t *testing.T) {
	t.Parallel()
	m := release(t)
	analyze := testserver.Require(t, "systemd-analyze")
	// verify wants the programs to exist where the unit says.
	text := strings.ReplaceAll(string(read(t, unit)), "/usr/bin/weir", m.binary)
	copied := filepath.Join(t.TempDir(), "weir.service")
	write(t, copied, text, 0o644)
	if got := output(t, analyze, "verify", "--man=no", copied); got != "" {
		t.Errorf("systemd-analyze verify: %s", got)
	}
	output(t, analyze, "security", "--offline=true", "--threshold="+most, copied)
	loose := strings.NewReplacer("ProtectSystem=strict\n", "", "SystemCallFilter=@system-service\n", "", "CapabilityBoundingSet=\n", "", "DynamicUser=yes\n", "").Replace(text)
	write(t, copied, loose, 0o644)
	if err := run(nil, ".", analyze, "security", "--offline=true", "--threshold="+most, copied); err == nil {
		t.Error("a unit that confines little passes as well")
	}
}

// TestUnit runs the unit's command as the unit says, installed in a folder, and
// stands in for systemd.
func TestUnit(t *testing.T) {
	t.Parallel()
	m := release(t)
	said := settings(t, unit)
	if !slices.Equal(said["Type"], []string{"notify"}) || !slices.Equal(said["ExecReload"], []string{"/bin/kill -HUP $MAINPID"}) {
		t.Fatalf("type %v, reload %v", said["Type"], said["ExecReload"])
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, read(t, filepath.Join(root, "deploy/package/rules.yaml")), 0o644)
	var variables []string
	for _, variable := range said["Environment"] {
		variables = append(variables, strings.ReplaceAll(variable, "/etc/weir/rules.yaml", rules))
	}
	if len(variables) != 1 || !strings.HasSuffix(variables[0], rules) {
		t.Fatalf("Environment: %v", said["Environment"])
	}
	command := strings.Fields(strings.ReplaceAll(said["ExecStart"][0], "/usr/bin/weir", m.binary))
	s := serve(t, served{command: command, env: variables})
	s.told("READY=1")
	if got := s.get("/v1/auth?domain=web&remote_address=192.0.2.1"); got != 204 {
		t.Errorf("the shipped rules: %d, want 204", got)
	}
	write(t, rules, "domain: web\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 0, unit: day, algorithm: gcra}}]\n", 0o644)
	s.hangup()
	s.told("RELOADING=1", "READY=1")
	if got := s.get("/v1/auth?domain=web&k=v"); got != 429 {
		t.Errorf("the new rules: %d, want 429", got)
	}
	s.stop()
	s.told("STOPPING=1")
}

// TestEnvironmentFile: each setting that the file proposes is a flag of serve.
func TestEnvironmentFile(t *testing.T) {
	t.Parallel()
	m := release(t)
	help := output(t, m.binary, "serve", "--help")
	proposed := 0
	for line := range strings.Lines(string(read(t, filepath.Join(root, "deploy/package/weir.env")))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		name, commented := strings.CutPrefix(name, "#WEIR_")
		if !ok || !commented {
			continue
		}
		proposed++
		if !strings.Contains(help, "[$WEIR_"+name+"]") || value == "" {
			t.Errorf("WEIR_%s=%s: no flag", name, value)
		}
	}
	if proposed < 3 {
		t.Errorf("%d settings are proposed", proposed)
	}
}
