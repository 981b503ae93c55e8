package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// asOfForm is how a price file says on which day its prices were right.
const asOfForm = time.DateOnly

// pricesPath returns the path of the price file that a rules file names in such words.
func pricesPath(rules, named string) string {
	if filepath.IsAbs(named) {
		return filepath.Clean(named)
	}
	return filepath.Join(filepath.Dir(rules), named)
}

// readPrices reads the price files that the rules files name. Those in the folders of the
// source are no rules files. Size is that of the rules files.
func (l *loader) readPrices(size int) {
	for i, f := range l.files {
		named := pricesNamed(l.texts[i].content)
		if named == "" {
			continue
		}
		path := pricesPath(f.name, named)
		if _, known := l.prices[path]; known {
			continue
		}
		t := read(path)
		if size += len(t.content); size > maxBytes {
			t = text{reason: fmt.Sprintf("the files are too large: at most %d bytes in all files together", maxBytes)}
		}
		if l.prices == nil {
			l.prices = map[string]text{}
		}
		l.prices[path] = t
	}
	for i := len(l.files) - 1; i >= 0 && len(l.texts) > 0; i-- {
		if _, known := l.prices[filepath.Clean(l.files[i].name)]; known {
			l.files, l.texts = slices.Delete(l.files, i, i+1), slices.Delete(l.texts, i, i+1)
		}
	}
}

// pricesNamed returns the path of a price file as the text of a rules file has it; empty if it
// has none, or mistakes that hide it.
func pricesNamed(text string) string {
	if !strings.Contains(text, "prices") {
		return ""
	}
	p := &parser{most: max(maxNodes, 2*len(text))}
	root, ok := p.document([]byte(text))
	if !ok || root == nil {
		return ""
	}
	o, _ := p.fields(root)
	return p.text(o, "prices")
}

// priceFile reads the price file that a rules file names.
func (p *parser) priceFile(o object, d *Domain) {
	named := p.text(o, "prices")
	switch {
	case !o.has("prices"):
		return
	case o.has("models"):
		p.clash(o, "models", o, "prices", "prices")
		return
	case named == "":
		p.required(o, "prices", named, "the path of a price file")
		return
	case p.prices == nil:
		p.report(o.position("prices"), "prices is "+quote(named), "models: these rules are in no file, next to which another one could be")
		return
	}
	path := pricesPath(p.file, named)
	t, read := p.prices[path]
	if !read {
		return // another mistake, which is reported
	}
	if t.reason != "" {
		p.report(p.get(o, "prices"), "prices is "+quote(named)+": "+t.reason, "a price file that can be read")
		return
	}
	q := &parser{file: path, most: max(maxNodes, 2*len(t.content))}
	d.Models, d.AsOf = q.priceTable([]byte(t.content))
	for _, problem := range q.problems {
		p.note(problem)
	}
}

// priceTable returns the rows in the text of a price file, and the day on which they were right.
func (p *parser) priceTable(text []byte) ([]Model, time.Time) {
	if len(text) > MaxFileBytes {
		p.note(Problem{What: "the file is too large", Want: fmt.Sprintf("at most %d bytes", MaxFileBytes)})
		return nil, time.Time{}
	}
	root, ok := p.document(text)
	switch {
	case !ok:
		return nil, time.Time{}
	case root == nil:
		p.note(Problem{Line: 1, Column: 1, What: "the file is empty", Want: "as_of and models"})
		return nil, time.Time{}
	}
	o, ok := p.object(root, inPrices)
	if !ok {
		return nil, time.Time{}
	}
	const want = "the day on which the prices were right, such as 2026-11-01"
	day := p.text(o, "as_of")
	p.required(o, "as_of", day, want)
	asOf, err := time.Parse(asOfForm, day)
	switch {
	case day == "":
	case err != nil:
		p.report(p.get(o, "as_of"), "as_of is "+quote(day), want)
	case time.Until(asOf) > 24*time.Hour:
		p.report(p.get(o, "as_of"), "as_of is "+quote(day), "a day that has come: prices are right as of then")
	}
	models := p.models(o)
	if p.get(o, "models") == nil {
		p.report(o.position("models"), "models is missing", "a list of models with their prices")
	}
	return models, asOf
}

// CheckPrices returns the mistakes in the text of a price file, as [Problems]; nil if there are
// none. The name stands in them.
func CheckPrices(name string, text []byte) error {
	p := &parser{file: name, most: max(maxNodes, 2*len(text))}
	if p.priceTable(text); len(p.problems) == 0 {
		return nil
	}
	p.problems.Sort()
	return p.problems
}
