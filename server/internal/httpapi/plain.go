package httpapi

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

const (
	// maxPlain is the size of the largest body that is read without encoding/json.
	maxPlain = 8 << 10
	// fewEntries is the number of entries that most requests have at most.
	fewEntries = 8
)

// plainMemory is what a body that is read without encoding/json consists of.
type plainMemory struct {
	descriptors [few]descriptorBody
	entries     [fewEntries]entryBody
	limits      [few]limitBody
	texts       [2*fewEntries + 2*few + 1]string
	numbers     [few + 3]int64
	record      bool

	usedEntries, usedTexts, usedNumbers int
}

// text gives a field memory for a text.
func (m *plainMemory) text(field **string) *string {
	*field = &m.texts[m.usedTexts]
	m.usedTexts++
	return *field
}

// number gives a field memory for a number.
func (m *plainMemory) number(field **int64) *int64 {
	*field = &m.numbers[m.usedNumbers]
	m.usedNumbers++
	return *field
}

// readPlain reads a body as nearly all programs write one: few parts, texts without escapes,
// whole numbers and no nulls, each field once. It reports false for any other body, which
// encoding/json then reads from the beginning. What it accepts means the same to encoding/json.
func (b *actBody) readPlain(text []byte, m *plainMemory) bool {
	if len(text) > maxPlain {
		return false
	}
	s := plainText{text: string(text)}
	var seen fieldSet
	ok := s.object(func(name string) bool {
		switch name {
		case "domain":
			return seen.add(0) && s.textInto(&b.Domain)
		case "descriptors":
			return seen.add(1) && b.readDescriptors(&s, m)
		case "limits":
			return seen.add(2) && b.readLimits(&s, m)
		case "cost":
			return seen.add(3) && s.number(m.number(&b.Cost))
		case "id":
			return seen.add(4) && s.textInto(&b.ID)
		case "hold_ms":
			return seen.add(5) && s.number(m.number(&b.HoldMS))
		case "mode":
			return seen.add(6) && s.textInto(m.text(&b.Mode))
		case "max_wait_ms":
			return seen.add(7) && s.number(m.number(&b.MaxWaitMS))
		case "record":
			b.Record = &m.record
			return seen.add(8) && s.boolean(b.Record)
		case "dry":
			return seen.add(9) && s.boolean(&b.Dry)
		}
		return false
	})
	return ok && s.ends() && (!s.wide || utf8.ValidString(s.text))
}

func (b *actBody) readDescriptors(s *plainText, m *plainMemory) bool {
	n := 0
	ok := s.array(func() bool {
		if n == len(m.descriptors) {
			return false
		}
		d := &m.descriptors[n]
		n++
		var seen fieldSet
		return s.object(func(name string) bool {
			return name == "entries" && seen.add(0) && d.readEntries(s, m)
		})
	})
	b.Descriptors = m.descriptors[:n]
	return ok
}

func (d *descriptorBody) readEntries(s *plainText, m *plainMemory) bool {
	from := m.usedEntries
	ok := s.array(func() bool {
		if m.usedEntries == len(m.entries) {
			return false
		}
		e := &m.entries[m.usedEntries]
		m.usedEntries++
		var seen fieldSet
		return s.object(func(name string) bool {
			switch name {
			case "key":
				return seen.add(0) && s.textInto(m.text(&e.Key))
			case "value":
				return seen.add(1) && s.textInto(m.text(&e.Value))
			}
			return false
		})
	})
	d.Entries = m.entries[from:m.usedEntries]
	return ok
}

func (b *actBody) readLimits(s *plainText, m *plainMemory) bool {
	n := 0
	ok := s.array(func() bool {
		if n == len(m.limits) {
			return false
		}
		l := &m.limits[n]
		n++
		var seen fieldSet
		return s.object(func(name string) bool {
			switch name {
			case "key":
				return seen.add(0) && s.textInto(m.text(&l.Key))
			case "limit":
				return seen.add(1) && s.textInto(m.text(&l.Limit))
			case "name":
				return seen.add(2) && s.textInto(&l.Name)
			case "cost":
				return seen.add(3) && s.number(m.number(&l.Cost))
			case "keep":
				return seen.add(4) && s.number(&l.Keep)
			}
			return false
		})
	})
	b.Limits = m.limits[:n]
	return ok
}

// A fieldSet has the fields of an object that were read.
type fieldSet uint16

// add adds a field and reports whether it is a new one.
func (s *fieldSet) add(field uint) bool {
	before := *s
	*s |= 1 << field
	return *s != before
}

// plainText is JSON that is read from its beginning. All methods report false, for good, for
// what is not the JSON that they read.
type plainText struct {
	text string
	at   int
	wide bool // some text has bytes above ASCII
}

// next passes over spaces and returns the next byte; 0 at the end.
func (s *plainText) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// byte passes over spaces and a byte.
func (s *plainText) byte(want byte) bool {
	if s.next() != want {
		return false
	}
	s.at++
	return true
}

func (s *plainText) ends() bool { return s.next() == 0 && s.at == len(s.text) }

// object reads an object, whose values field reads.
func (s *plainText) object(field func(name string) bool) bool {
	return s.list('{', '}', func() bool {
		var name string
		return s.textInto(&name) && s.byte(':') && field(name)
	})
}

// array reads an array, whose elements element reads.
func (s *plainText) array(element func() bool) bool { return s.list('[', ']', element) }

func (s *plainText) list(first, last byte, element func() bool) bool {
	if !s.byte(first) {
		return false
	}
	if s.byte(last) {
		return true
	}
	for element() {
		if s.byte(last) {
			return true
		}
		if !s.byte(',') {
			return false
		}
	}
	return false
}

// textInto reads a text without escapes.
func (s *plainText) textInto(to *string) bool {
	if !s.byte('"') {
		return false
	}
	from := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			*to = s.text[from:s.at]
			s.at++
			return true
		case c < ' ' || c == '\\':
			return false
		case c >= utf8.RuneSelf:
			s.wide = true
		}
	}
	return false
}

// number reads a whole number that is not negative and that every int64 can be.
func (s *plainText) number(to *int64) bool {
	const maxDigits = 18
	s.next()
	from, n := s.at, int64(0)
	for ; s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9'; s.at++ {
		n = 10*n + int64(s.text[s.at]-'0')
		if s.at-from == maxDigits {
			return false
		}
	}
	*to = n
	digits := s.at - from
	return digits == 1 || digits > 1 && s.text[from] != '0'
}

func (s *plainText) boolean(to *bool) bool {
	for _, word := range []string{"false", "true"} {
		if s.next() == word[0] && len(s.text)-s.at >= len(word) && s.text[s.at:s.at+len(word)] == word {
			s.at += len(word)
			*to = word == "true"
			return true
		}
	}
	return false
}

// appendJSON appends the answer as encoding/json writes it.
func (v *verdict) appendJSON(b []byte) []byte {
	b = strconv.AppendBool(append(b, `{"allowed":`...), v.allowed)
	b = strconv.AppendInt(append(b, `,"granted":`...), v.granted, 10)
	b = appendText(append(b, `,"id":`...), v.id)
	b = append(b, `,"limits":[`...)
	for i := range v.limits {
		if i > 0 {
			b = append(b, ',')
		}
		l := v.limitAnswer(i)
		b = l.appendJSON(b)
	}
	return append(b, "]}\n"...)
}

func (l *limitAnswer) appendJSON(b []byte) []byte {
	b = appendText(append(b, `{"name":`...), l.Name)
	b = appendText(append(b, `,"key":`...), l.Key)
	b = appendText(append(b, `,"algorithm":`...), l.Algorithm)
	b = strconv.AppendInt(append(b, `,"limit":`...), l.Limit, 10)
	b = strconv.AppendInt(append(b, `,"granted":`...), l.Granted, 10)
	b = strconv.AppendInt(append(b, `,"remaining":`...), l.Remaining, 10)
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), l.RetryAfterMS, 10)
	b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), l.ResetAfterMS, 10)
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), l.DelayMS, 10)
	b = strconv.AppendInt(append(b, `,"at_us":`...), l.AtUS, 10)
	b = appendText(append(b, `,"source":`...), l.Source)
	if l.Blocked {
		b = append(b, `,"blocked":true`...)
	}
	if l.Count != "" {
		b = appendText(append(b, `,"count":`...), l.Count)
	}
	if l.Budget != "" {
		b = appendText(append(b, `,"budget":`...), l.Budget)
	}
	if l.Keep != 0 {
		b = strconv.AppendInt(append(b, `,"keep":`...), l.Keep, 10)
	}
	if l.Alternative != 0 {
		b = strconv.AppendInt(append(b, `,"alternative":`...), int64(l.Alternative), 10)
	}
	if l.Chosen {
		b = append(b, `,"chosen":true`...)
	}
	if l.Shadow {
		b = append(b, `,"shadow":true`...)
	}
	if l.Trial {
		b = append(b, `,"trial":true`...)
	}
	return append(b, '}')
}

// appendText appends a text. encoding/json escapes what could be more than a text elsewhere.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(text) // a text has no errors
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
