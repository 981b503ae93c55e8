package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	noWord  = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// Broken says what is wrong with a link of a page to a file or a heading of the
// repository, and nothing if it leads somewhere.
func Broken(t testing.TB, page, target string) string {
	t.Helper()
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		file = page
	} else {
		file = filepath.ToSlash(filepath.Join(filepath.Dir(page), file))
	}
	if _, err := os.Stat(Path(file)); err != nil || strings.HasPrefix(file, "../") {
		return "there is no such file"
	}
	if anchor != "" && !slices.Contains(anchors(t, file), anchor) {
		return "there is no such heading"
	}
	return ""
}

// prose is a page without its blocks.
func prose(t testing.TB, page string) string {
	t.Helper()
	return fence.ReplaceAllString(read(t, page), "")
}

// Headings returns the headings of a page, from the top down.
func Headings(t testing.TB, page string) []string {
	t.Helper()
	var all []string
	for _, m := range heading.FindAllStringSubmatch(prose(t, page), -1) {
		all = append(all, m[1])
	}
	return all
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(t testing.TB, page string) []string {
	t.Helper()
	all := Headings(t, page)
	for i, text := range all {
		all[i] = strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
	}
	return all
}
