package accesslog

import (
	"encoding/json"
	"errors"
	"strings"
)

// jsonParser reads an object a line. Values within objects have names with dots,
// as in "request.path".
type jsonParser struct {
	dater     dater
	timeField string
}

func (p *jsonParser) parse(line string, r *Record) error {
	line = strings.Trim(line, " \t\r\n")
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) {
		return errors.New("no JSON object")
	}
	o := objects{rest: line, record: r}
	o.object("", 0)
	if request, ok := r.get("request"); ok {
		r.addRequest(request)
	}
	return r.timed(&p.dater, p.timeField)
}

// maxNesting is how deep fields are looked for.
const maxNesting = 5

// objects takes valid JSON apart.
type objects struct {
	rest   string
	record *Record
}

func (o *objects) skip() { o.rest = strings.TrimLeft(o.rest, " \t\r\n,:") }

// object adds the fields of an object, whose brace is next.
func (o *objects) object(prefix string, depth int) {
	for o.rest = o.rest[1:]; ; {
		o.skip()
		if o.rest[0] == '}' {
			o.rest = o.rest[1:]
			return
		}
		name := prefix + o.text()
		o.skip()
		switch o.rest[0] {
		case '{':
			o.object(name+".", depth+1)
		case '[':
			o.array()
		case '"':
			if value := o.text(); depth < maxNesting {
				o.record.add(name, value)
			}
		default:
			if value := o.literal(); value != "null" && depth < maxNesting {
				o.record.add(name, value)
			}
		}
	}
}

// array skips an array: no name could say which of its elements is meant.
func (o *objects) array() {
	for depth := 0; ; {
		switch o.rest[0] {
		case '"':
			o.text()
			continue
		case '[':
			depth++
		case ']':
			depth--
		}
		o.rest = o.rest[1:]
		if depth == 0 {
			return
		}
	}
}

// text returns a string, whose quote is next.
func (o *objects) text() string {
	end := 1
	for {
		end += strings.IndexByte(o.rest[end:], '"')
		if !escaped(o.rest[1:end]) {
			break
		}
		end++
	}
	quoted := o.rest[:end+1]
	o.rest = o.rest[end+1:]
	plain := quoted[1:end]
	if strings.IndexByte(plain, '\\') >= 0 {
		// Valid as the line was, this cannot fail.
		_ = json.Unmarshal([]byte(quoted), &plain)
	}
	return plain
}

func (o *objects) literal() string {
	end := strings.IndexAny(o.rest, ",}] \t\r\n")
	value := o.rest[:end]
	o.rest = o.rest[end:]
	return value
}
