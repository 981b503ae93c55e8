// Package pages reads the project's Markdown for tests: its fenced blocks, each of which
// a test runs, and the sections that tests write.
package pages

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Update says that tests are to write what they find into the pages in the place of
// comparing it: go test -update.
var Update = flag.Bool("update", false, "write what the tests find into the docs")

// A Block is what stands between two fences.
type Block struct {
	Page     string // its path from the root of the repository, with slashes
	Line     int    // of the opening fence
	Language string // the first word behind the fence, if there is one
	File     string // the second: the name of the file that the block shows
	Text     string // with the newline at its end
}

var fence = regexp.MustCompile("(?ms)^```([^`\\s]*)(?: +(\\S+))?\n(.*?)^```$")

// Blocks returns all blocks of a page, from the top down.
func Blocks(t testing.TB, page string) []Block {
	t.Helper()
	text := read(t, page)
	var all []Block
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string {
			if m[i] < 0 {
				return ""
			}
			return text[m[i]:m[i+1]]
		}
		line := 1 + strings.Count(text[:m[0]], "\n")
		all = append(all, Block{Page: page, Line: line, Language: part(2), File: part(4), Text: part(6)})
	}
	return all
}

// comment is what follows a command on its line.
var comment = regexp.MustCompile(`(^|\s+)# .*$`)

// Commands returns the commands of a block of shell, each on one line: all of sh, and
// behind the prompts of console. Comments are left out.
func (b Block) Commands() []string {
	var all []string
	more := false
	for line := range strings.Lines(b.Text) {
		line = strings.TrimSuffix(line, "\n")
		command, typed := strings.CutPrefix(line, "$ ")
		if b.Language == "console" && !typed && !more {
			continue
		}
		command, continued := strings.CutSuffix(comment.ReplaceAllString(command, ""), "\\")
		if more {
			all[len(all)-1] += strings.TrimLeft(command, " ")
		} else if command != "" {
			all = append(all, command)
		}
		more = continued
	}
	return all
}

// Hold compares the blocks of a page that the register gives to this test with what
// they should be, or replaces them. What mask matches is not compared, but for its
// two groups.
func Hold(t testing.TB, page string, mask *regexp.Regexp, want func(Block) string) {
	t.Helper()
	for _, b := range Mine(t, page) {
		text := want(b)
		if *Update {
			b.replace(t, text)
		} else if hide(mask, text) != hide(mask, b.Text) {
			t.Errorf("%s:%d says\n%s\nbut it is\n%s", page, b.Line, b.Text, text)
		}
	}
}

func hide(mask *regexp.Regexp, text string) string {
	if mask == nil {
		return text
	}
	return mask.ReplaceAllString(text, "$1$2…")
}

// replace writes another text into the page.
func (b Block) replace(t testing.TB, text string) {
	t.Helper()
	head := strings.TrimRight("```"+b.Language+" "+b.File, " ") + "\n"
	change(t, b.Page, func(page string) string { return strings.Replace(page, head+b.Text+"```", head+text+"```", 1) })
}

// Section compares the text between two marks of a page, <!-- name --> and
// <!-- /name -->, with what it should be, or replaces it.
func Section(t testing.TB, page, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	_, rest, found := strings.Cut(read(t, page), begin)
	got, _, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no section %s", page, name)
	case got == want:
	case *Update:
		change(t, page, func(text string) string { return strings.Replace(text, begin+got+end, begin+want+end, 1) })
	default:
		t.Fatalf("%s says\n%s\nbut it is\n%s", page, got, want)
	}
}

// changing lets one test after the other write, since they run in parallel.
var changing sync.Mutex

func change(t testing.TB, page string, edit func(string) string) {
	t.Helper()
	changing.Lock()
	defer changing.Unlock()
	if err := os.WriteFile(Path(page), []byte(edit(read(t, page))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// All returns the project's pages, sorted.
func All(t testing.TB) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// Packages that tests install have pages of their own.
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			page, err := filepath.Rel(root, path)
			all = append(all, filepath.ToSlash(page))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Path is where a file of the repository lies, whatever folder a test has gone to.
func Path(file string) string { return filepath.Join(root, filepath.FromSlash(file)) }

func read(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(Path(page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// root is the folder of the repository, above that in which the tests start.
var root = findRoot()

func findRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for above := dir; above != filepath.Dir(above); above = filepath.Dir(above) {
		if info, err := os.Stat(filepath.Join(above, "docs", "decisions")); err == nil && info.IsDir() {
			return above
		}
	}
	return dir
}
