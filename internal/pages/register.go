package pages

import (
	"strings"
	"testing"
)

// A Claim gives the blocks of a page to the test that runs them, or says why no test
// does.
type Claim struct {
	Page     string
	Language string // of the blocks, empty for any
	Has      string // a text in them, empty for any
	Test     string // the folder of the package, a dot, and the test's name
	Because  string // in the place of Test
}

// fits says whether a block is among those of the claim.
func (c Claim) fits(b Block) bool {
	return c.Page == b.Page && (c.Language == "" || c.Language == b.Language) && strings.Contains(b.Text, c.Has)
}

// Claimed returns the first claim that a block is among.
func Claimed(b Block) (Claim, bool) {
	for _, c := range Register {
		if c.fits(b) {
			return c, true
		}
	}
	return Claim{}, false
}

// Mine returns the blocks of a page that the register gives to this test.
func Mine(t testing.TB, page string) []Block {
	t.Helper()
	var mine []Block
	test, _, _ := strings.Cut(t.Name(), "/")
	for _, b := range Blocks(t, page) {
		if c, found := Claimed(b); found && strings.HasSuffix(c.Test, "."+test) {
			mine = append(mine, b)
		}
	}
	if len(mine) == 0 {
		t.Fatalf("the register gives no block of %s to %s", page, test)
	}
	return mine
}

// Register has a claim for every block, the first that fits counts.
var Register = []Claim{
	{Page: "docs/quickstart.md", Test: "internal/e2e.TestQuickstart"},
	{Page: "docs/http.md", Test: "internal/e2e.TestHTTPDocs"},
}
