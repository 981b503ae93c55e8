package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestManual(t *testing.T) {
	t.Parallel()
	root := newRoot()
	page := manual(root)
	for _, cmd := range everyCommand(root) {
		if cmd.Hidden != !strings.Contains(page, "\n.SS "+quoteRoff(cmd.UseLine())+"\n") {
			t.Errorf("%s is hidden: %t; the page does not agree", cmd.CommandPath(), cmd.Hidden)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := describeFlag(f); !f.Hidden && !cmd.Hidden && f.Name != "help" && !strings.Contains(page, "\n.B "+roff(name)+"\n") {
				t.Errorf("%s: the page lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
	if i := strings.IndexFunc(page, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }); i >= 0 {
		t.Errorf("not ASCII: %.40q", page[i:])
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("groff is not installed")
	}
	groff := exec.CommandContext(t.Context(), "groff", "-man", "-Tascii", "-ww", "-P-c")
	groff.Stdin = strings.NewReader(page)
	var out, errOut bytes.Buffer
	groff.Stdout, groff.Stderr = &out, &errOut
	if err := groff.Run(); err != nil {
		t.Fatal(err, &errOut)
	}
	for line := range strings.Lines(errOut.String()) {
		if !strings.Contains(line, "break") { // a URL longer than the line
			t.Errorf("groff: %s", line)
		}
	}
	if !strings.Contains(out.String(), "weir completion bash") {
		t.Errorf("groff's page lacks the description:\n%.400s", &out)
	}
}
