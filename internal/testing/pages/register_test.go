package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryBlock demands that each block of each page is run by a test, or that the
// register says why none does.
func TestEveryBlock(t *testing.T) {
	t.Parallel()
	used := map[Claim]bool{}
	n := 0
	for _, page := range All(t) {
		blocks := Blocks(t, page)
		for _, b := range blocks {
			c, found := Claimed(b)
			if !found {
				t.Errorf("%s:%d: no test runs this block, and the register has no reason", page, b.Line)
			}
			used[c] = true
		}
		n += len(blocks)
		if fences := len(anyFence.FindAllString(read(t, page), -1)); fences != 2*len(blocks) {
			t.Errorf("%s: %d fences and %d blocks: one is indented, or not closed", page, fences, len(blocks))
		}
	}
	if n < 80 {
		t.Errorf("%d blocks were found", n)
	}
	for _, c := range Register {
		if !used[c] {
			t.Errorf("%+v is for no block", c)
		}
	}
}

var anyFence = regexp.MustCompile("(?m)^\\s*```")

// TestClaims demands that each test of the register exists, in a package that reads
// the page, and that what has no test has a reason.
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, c := range Register {
		if (c.Test == "") == (c.Because == "") {
			t.Errorf("%+v: want a test or a reason", c)
		}
		if c.Test == "" {
			continue
		}
		folder, name, _ := strings.Cut(c.Test, ".Test")
		code := testsIn(t, folder)
		if !strings.Contains(code, "\nfunc Test"+name+"(t *testing.T) {") {
			t.Errorf("there is no %s", c.Test)
		}
		if page := strings.TrimPrefix(c.Page, "docs/"); c.Page != "" && !strings.Contains(code, page+`"`) || c.Page == "" && !strings.Contains(code, "pages.All(t)") {
			t.Errorf("%s: its package does not read %s", c.Test, c.Page)
		}
	}
}

var held = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestSecurityHolds demands that each sentence of the table of SECURITY.md names a test,
// and that it exists.
func TestSecurityHolds(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(read(t, "SECURITY.md"), "## Tested statements about callers\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	n := 0
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| | ") {
			continue
		}
		n++
		tests := held.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range tests {
			if !regexp.MustCompile(`\nfunc ` + m[2] + `\(`).MatchString(testsIn(t, m[1])) {
				t.Errorf("there is no %s.%s", m[1], m[2])
			}
		}
	}
	if n < 15 {
		t.Errorf("%d sentences were found", n)
	}
}

// testsIn is the text of a package's tests.
func testsIn(t *testing.T, folder string) string {
	t.Helper()
	if folder == "weir" {
		folder = "."
	}
	files, err := filepath.Glob(filepath.Join(Path(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)

// TestLinks follows all links within the repository, to files and to headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range All(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			n++
			if why := Broken(t, page, target); why != "" {
				t.Errorf("%s: %s: %s", page, target, why)
			}
		}
	}
	if n < 120 {
		t.Errorf("%d links were found", n)
	}
}

// TestBrokenLinks: the test above must see what is wrong.
func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	for target, good := range map[string]bool{
		"admin.md": true, "admin.md#who-may-call": true, "../README.md": true, "../examples/nginx": true, "#who-may-call": true,
		"none.md": false, "admin.md#none": false, "#none": false, "../../other": false,
	} {
		if why := Broken(t, "docs/admin.md", target); (why == "") != good {
			t.Errorf("%s: %q", target, why)
		}
	}
}

// TestIndex demands that the index of the docs has every page.
func TestIndex(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	for _, page := range All(t) {
		name, inDocs := strings.CutPrefix(page, "docs/")
		if inDocs && !strings.Contains(name, "/") && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not have %s", name)
		}
	}
}
