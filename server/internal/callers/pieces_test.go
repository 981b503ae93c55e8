package callers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// company is a file of callers with two tokens each.
func company(callers int) []byte {
	var text bytes.Buffer
	text.WriteString("# people\ncallers:\n")
	for i := range callers {
		fmt.Fprintf(&text, "  - name: p%d\n    labels: {user: p%d, team: t%d, company: acme}\n    tokens:\n    - %s\n    - %s\n    verbs: [take]\n    domains: [llm]\n",
			i, i, i%500, digestOf(fmt.Sprintf("token-of-%09d", i)), digestOf(fmt.Sprintf("second-of-%08d", i)))
	}
	return text.Bytes()
}

// TestLargeFile wants a file of many pieces read, and each caller found by its tokens with its
// labels.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	const many = 20_000
	text := company(many)
	set, err := Parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != many || !set.HasLabel("team") || set.HasLabel("cost_center") {
		t.Errorf("%d callers", set.Len())
	}
	for _, i := range []int{0, 1, 9_999, many - 1} {
		for _, token := range []string{fmt.Sprintf("token-of-%09d", i), fmt.Sprintf("second-of-%08d", i)} {
			c := set.token(token)
			if want := fmt.Sprintf("[{company acme} {team t%d} {user p%d}]", i%500, i); c == nil || fmt.Sprint(c.Labels) != want {
				t.Errorf("%s: %+v, want %s", token, c, want)
			}
		}
	}
	last := set.token(fmt.Sprintf("token-of-%09d", many-1))
	if first := set.token("token-of-000000000"); fmt.Sprintf("%p", first.domains) != fmt.Sprintf("%p", last.domains) {
		t.Error("each caller has domains of its own")
	}
	p := &parser{set: set, callers: maxCallers, file: "f", lines: 41, domains: map[string]map[string]bool{}}
	p.piece([]byte("callers:\n  - name: more\n    tokens: [" + digestOf("one more token of all") + "]\n    verbs: [take]\n    domains: [llm]\n"))
	if len(p.problems) != 1 || p.problems[0].String() != "f:43:5: more than 100000 callers; want fewer" {
		t.Error(p.problems)
	}
	lines := bytes.SplitAfter(company(8_000), []byte("\n"))
	lines[2+7*6_000+5] = []byte("    verbs: [steal]\n")
	want := fmt.Sprintf(`f:%d:13: a verb is "steal"; want one of take`, 2+7*6_000+6)
	if _, err := Parse("f", bytes.Join(lines, nil)); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	lines[2+7*6_000+5] = []byte("\tverbs: [take]\n")
	if _, err := Parse("f", bytes.Join(lines, nil)); err == nil || strings.Contains(err.Error(), digestOf("token-of-000006000")) {
		t.Error(err)
	}
}

// FuzzPieces: a file that is read in pieces has the callers and the mistakes of one that is read
// as a whole.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("callers:\n- name: a\n  verbs: [take]\n# c\n- name: b\n\n  domains: [\"*\"]\n"))
	f.Add(company(3))
	f.Add([]byte("---\ncallers:\n    # none\n    - {name: a}\n    - name: >\n        text\n        - name: b\n"))
	f.Add([]byte("callers:\n  - name: \"a\n   - b\"\n  - x\n- y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pieces, regular := piecesOf(text)
		whole, err := Parse("f", text)
		if !regular || len(text) > maxFile || err != nil && !strings.HasPrefix(err.Error(), "f:") {
			return
		}
		if err != nil {
			return // a mistake may hide others in the same piece only
		}
		p := &parser{file: "f", set: &Set{byName: map[string]*Caller{}, byToken: map[[sha256.Size]byte]*Caller{}, byCertificate: map[string]*Caller{}}, domains: map[string]map[string]bool{}}
		for _, piece := range pieces {
			p.lines = piece.lines
			p.piece(piece.text)
		}
		if len(p.problems) > 0 || fmt.Sprint(len(p.set.byName), len(p.set.byToken), len(p.set.byCertificate)) != fmt.Sprint(len(whole.byName), len(whole.byToken), len(whole.byCertificate)) {
			t.Errorf("%q: %v, %d of %d callers", text, p.problems, len(p.set.byName), len(whole.byName))
		}
	})
}

// TestLargeFileIsNotReadInVain wants a large file read again when it changes, and not while it
// does not.
func TestLargeFileIsNotReadInVain(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	old := time.Now().Add(-time.Hour)
	write := func(text []byte, at time.Time) {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(company(500), old)
	f, err := OpenFile(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.watched.file += ".gone"
	if f.watched.settled() {
		t.Error("a file that is gone is as it was")
	}
	f.watched.file = name
	if !f.watched.settled() {
		t.Error("a file that did not change is read again")
	}
	write(company(501), old)
	if f.watched.reread(); f.set().Len() != 501 || !f.watched.settled() {
		t.Errorf("%d callers", f.set().Len())
	}
	write(bytes.ReplaceAll(company(501), []byte("t7,"), []byte("t8,")), time.Now())
	if f.watched.reread(); fmt.Sprint(f.set().token("token-of-000000007").Labels[1]) != "{team t8}" || f.watched.settled() {
		t.Errorf("%v", f.set().token("token-of-000000007").Labels)
	}
}
