package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// sample has everything that a page can have, and text that would be markup.
func sample() *Page {
	return &Page{
		Title: `A <page> & "more"`, Lead: "What it is about.", Notes: []string{"A note </script>."},
		Tables: []Table{{Title: "Table", Head: []string{"name", "n"}, Rows: [][]string{{"</script><b>", "1000"}, {"é", "2"}}, Left: 1}},
		Charts: []Chart{
			{Title: "One </script><script>alert(1)</script>", X: []float64{0, 60, 120, 180}, Limit: 15, Series: []Series{
				{Name: "all", Values: []float64{0, 10, 20, 5}, Background: true}, {Name: "some & more", Values: []float64{0, 1, 2, 0.5}},
			}},
			{Title: "Two", X: []float64{1.75e9, 1.75e9 + 1}, Clock: true, Series: []Series{{Name: "n", Values: []float64{1, 2}}}},
			{Title: "Empty"},
		},
	}
}

func write(t *testing.T, f func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func text(p *Page, width int) func(io.Writer) error {
	return func(w io.Writer) error { return p.WriteText(w, width) }
}

// TestNarrow wants tables to fit a terminal, and spreadsheets to get all of them.
func TestNarrow(t *testing.T) {
	t.Parallel()
	p := &Page{Tables: []Table{{Title: "T", Left: 2, Head: []string{"name", "rule", "n"}, Rows: [][]string{{strings.Repeat("long ", 9), "shop/client", "12345"}}}}}
	got := write(t, text(p, 40))
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 40 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(got, "  shop/client  12345\n") || !strings.Contains(got, "\nlong l…") {
		t.Errorf("got\n%s", got)
	}
	if got := shorten("web/remote_address=192.0.2.77", 20); len([]rune(got)) != 20 || !strings.HasSuffix(got, "=192.0.2.77") {
		t.Errorf("%q does not tell the key", got)
	}
	if want := "T\nname\trule\tn\n" + strings.Repeat("long ", 9) + "\tshop/client\t12345\n"; write(t, p.WriteTSV) != want {
		t.Errorf("got %q, want %q", write(t, p.WriteTSV), want)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	got := write(t, text(sample(), 0))
	for _, want := range []string{
		"Table\nname             n\n</script><b>  1000\né                2\n", "(limit 15)", "all, at most 20\n", "some & more, at most 2\n",
		"0:00", "4:00", "* A note",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if empty := write(t, text(&Page{Title: "T", Charts: []Chart{{Title: "none"}}}, 0)); empty != "T\n" {
		t.Errorf("an empty page is %q", empty)
	}
}

// TestSVG: pictures are well-formed whatever they are called.
func TestSVG(t *testing.T) {
	t.Parallel()
	for _, c := range sample().Charts {
		dec := xml.NewDecoder(strings.NewReader(write(t, c.WriteSVG)))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.Title, err)
			}
		}
	}
	zero := Chart{X: []float64{0, 1}, Series: []Series{{Values: []float64{0, 0}}}}
	if got := write(t, zero.WriteSVG); strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Errorf("nothing at all is drawn as %s", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0": Count(0), "999": Count(999), "1000": Count(1000), "-12345678": Count(-12345678),
		"0.5": Number(0.5), "12": Number(12), "1235": Number(1234.6), "0.3333": Number(1.0 / 3),
		"–": Percent(0, 0), "0%": Percent(0, 5), "100%": Percent(5, 5), "33.33%": Percent(1, 3), "<0.01%": Percent(1, 1e6), ">99.99%": Percent(1e6-1, 1e6),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for top, want := range map[float64]float64{0: 1, 0.3: 1, 7: 2, 2000: 500, 1033: 500, 40: 10, 45: 20, 4: 1} {
		if got := niceStep(top); got != want {
			t.Errorf("step of %g: got %g, want %g", top, got, want)
		}
	}
	long := Series{Values: make([]float64, 1000)}
	long.Values[503] = 7
	if thin := (&Series{Values: long.thin(64)}); len(thin.Values) != 64 || thin.most() != 7 {
		t.Error("a peak got lost")
	}
}
