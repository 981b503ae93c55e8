package cli_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/cli"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/lab/sim"
)

// TestSimulateDocs runs the commands of docs/simulate.md, and demands that the
// page has what they print.
func TestSimulateDocs(t *testing.T) {
	const folder = "testdata/replay/"
	for _, run := range []struct {
		section string
		args    []string
	}{
		{"weir simulate edge-burst", []string{"simulate", "edge-burst"}},
		{"weir simulate outage", []string{"simulate", "outage"}},
		{"weir simulate sharing", []string{"simulate", "sharing"}},
		{"weir replay", []string{
			"replay", folder + "access.log", "--config", folder + "rules.yaml", "--suggest", "1%", "--top", "3",
			"--descriptor", "shop client=$remote_addr", "--descriptor", "shop path=$request_path,client=$remote_addr",
		}},
	} {
		var out, errOut bytes.Buffer
		if code := cli.Execute(context.Background(), run.args, &out, &errOut); code != cli.ExitOK || errOut.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", run.args, code, &errOut)
			continue
		}
		text := strings.ReplaceAll(out.String(), folder, "")
		pages.Section(t, "docs/simulate.md", run.section, "```\n"+text+"```\n")
	}
	table := "| name | what it shows |\n|---|---|\n"
	for _, s := range sim.Builtin() {
		table += "| `" + s.Name + "` | " + s.Summary + " |\n"
	}
	table += "| `" + sim.Sharing + "` | " + sim.SharingSummary + " |\n"
	pages.Section(t, "docs/simulate.md", "scenarios", table)
}

// TestEdgeBurstPicture demands that the picture is what weir simulate draws.
func TestEdgeBurstPicture(t *testing.T) {
	t.Parallel()
	s, err := sim.Find("edge-burst")
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantPicture(t, "edge_burst.svg", &result.Page().Charts[0])
}

// TestSharingPictures demands that the pictures are what weir simulate draws.
func TestSharingPictures(t *testing.T) {
	t.Parallel()
	result, err := sim.RunSharing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"sharing.svg", "sharing_without.svg"} {
		wantPicture(t, name, &result.Page().Charts[i])
	}
}

// wantPicture compares a picture of the docs with a chart, or writes it.
func wantPicture(t *testing.T, name string, chart *report.Chart) {
	t.Helper()
	var got bytes.Buffer
	if err := chart.WriteSVG(&got); err != nil {
		t.Fatal(err)
	}
	file := pages.Path("docs/pictures/" + name)
	if *pages.Update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(text, got.Bytes()) {
		t.Errorf("%s is not what weir simulate draws (%v); -update writes it", file, err)
	}
}
