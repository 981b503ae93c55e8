package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// nobody is the user of the image and of the manifests.
const nobody = "65532"

// TestConfined runs the binary as the image does: no root, no capability, nothing
// to write to, and nothing else in its file system than it and its rules.
func TestConfined(t *testing.T) {
	t.Parallel()
	m := release(t)
	for _, program := range []string{"unshare", "mount", "setpriv", "chroot"} {
		testserver.Require(t, program)
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: needs root to give it up")
	}
	image := t.TempDir()
	for name, content := range map[string][]byte{
		"weir":           read(t, m.binary),
		"rules/web.yaml": read(t, filepath.Join(root, "deploy/compose/rules/web.yaml")),
	} {
		write(t, filepath.Join(image, name), content, 0o755)
	}
	// The test's folders are for root alone.
	for dir := image; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const script = `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" &&
		exec setpriv --no-new-privs chroot --userspec=` + nobody + `:` + nobody + ` --groups= "$0" "$@"`
	command := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, image, "/weir", "serve", "--config=/rules"}
	s := serve(t, served{command: command, env: []string{"GOMEMLIMIT=230MiB"}})
	s.confined()
	for i := range 31 {
		want := 204
		if i == 30 {
			want = 429
		}
		if got := s.get("/v1/auth?domain=web&remote_address=192.0.2.1"); got != want {
			t.Fatalf("call %d: %d, want %d", i+1, got, want)
		}
	}
	s.stop()
}

// confined demands of the process what the test claims.
func (s *server) confined() {
	s.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", s.Cmd.Process.Pid)
	status := string(read(s.t, proc+"status"))
	for _, want := range []string{
		"Uid:\t" + strings.Join([]string{nobody, nobody, nobody, nobody}, "\t") + "\n",
		"CapEff:\t0000000000000000\n",
		"CapPrm:\t0000000000000000\n",
		"NoNewPrivs:\t1\n",
	} {
		if !strings.Contains(status, want) {
			s.t.Errorf("the process is not %q:\n%s", want, status)
		}
	}
	if err := os.WriteFile(proc+"root/written", nil, 0o644); err == nil {
		s.t.Error("its root can be written to")
	}
}
