package jsonbody

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// fields are the names of a struct's fields in JSON, and their types.
type fields []struct {
	name string
	of   reflect.Type
}

var known sync.Map // fields by reflect.Type of a struct

func fieldsOf(t reflect.Type) fields {
	if all, ok := known.Load(t); ok {
		return all.(fields)
	}
	var all fields
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all = append(all, struct {
			name string
			of   reflect.Type
		}{name, t.Field(i).Type})
	}
	known.Store(t, all)
	return all
}

// A wrongName is the name of a field, with those of the objects around it, and what is wrong.
type wrongName struct{ path, problem string }

const repeated = "repeated"

// A walker goes through a text that is valid JSON. encoding/json takes the last of several
// fields of one name, and names in any case: a proxy or a log in front may have read another
// one.
type walker struct {
	text []byte
	at   int
}

// checkNames returns the first field of an object that its struct does not have by exactly that
// name, or that the object has twice; nil if there is none.
func checkNames(text []byte, t reflect.Type) *wrongName {
	w := walker{text: text}
	return w.value(t, "")
}

// value passes over a value of a type; nil is any.
func (w *walker) value(t reflect.Type, path string) *wrongName {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch w.space(); w.text[w.at] {
	case '{':
		return w.object(t, path)
	case '[':
		return w.array(t, path)
	case '"':
		w.name()
	default: // a number or a word
		for w.at < len(w.text) && !strings.ContainsRune(",]} \t\r\n", rune(w.text[w.at])) {
			w.at++
		}
	}
	return nil
}

func (w *walker) object(t reflect.Type, path string) *wrongName {
	var seen names
	for w.at++; w.more('}'); {
		name := w.name()
		w.space()
		w.at++ // the colon
		within := path + name
		if path != "" {
			within = path + "." + name
		}
		var of reflect.Type
		switch {
		case t == nil:
		case t.Kind() == reflect.Struct:
			found := false
			for _, f := range fieldsOf(t) {
				if f.name == name {
					of, found = f.of, true
				}
			}
			if !found {
				return &wrongName{within, "unknown"}
			}
		case t.Kind() == reflect.Map:
			of = t.Elem()
		}
		if !seen.add(name) {
			return &wrongName{within, repeated}
		}
		if wrong := w.value(of, within); wrong != nil {
			return wrong
		}
	}
	return nil
}

// names are those of an object. Most objects have few.
type names struct {
	few  []string
	many map[string]bool
}

// add adds a name and reports whether it is a new one.
func (n *names) add(name string) bool {
	const few = 16
	switch {
	case n.many[name] || slices.Contains(n.few, name):
		return false
	case len(n.few) < few:
		n.few = append(n.few, name)
		return true
	case n.many == nil:
		n.many = map[string]bool{}
	}
	n.many[name] = true
	return true
}

func (w *walker) array(t reflect.Type, path string) *wrongName {
	if t != nil && t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	w.at++
	for i := 0; w.more(']'); i++ {
		if wrong := w.value(t, path+"["+strconv.Itoa(i)+"]"); wrong != nil {
			return wrong
		}
	}
	return nil
}

// more passes over what separates elements, and reports whether there is another one before
// the end.
func (w *walker) more(end byte) bool {
	w.space()
	if w.text[w.at] == ',' {
		w.at++
		w.space()
	}
	if w.text[w.at] != end {
		return true
	}
	w.at++
	return false
}

func (w *walker) space() {
	for strings.IndexByte(" \t\r\n", w.text[w.at]) >= 0 {
		w.at++
	}
}

// name returns a string as it is meant.
func (w *walker) name() string {
	from, escaped := w.at, false
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			escaped = true
			w.at++
		}
	}
	w.at++
	if !escaped {
		return string(w.text[from+1 : w.at-1])
	}
	var name string
	_ = json.Unmarshal(w.text[from:w.at], &name) // it is valid
	return name
}
