package meter

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A field is a field on the top level of a JSON object; its value is a part of the text.
type field struct {
	name  string
	value []byte
	at    int // where the value begins
}

// topFields returns the fields of a valid JSON object, and false for another value.
func topFields(text []byte) ([]field, bool) {
	s := scanner{text: text}
	if s.space(); s.at() != '{' {
		return nil, false
	}
	var fields []field
	s.i++
	for s.space(); s.at() != '}'; s.space() {
		if s.at() == ',' {
			s.i++
			s.space()
		}
		from := s.i
		s.skipText()
		key := text[from:s.i]
		var name string
		if json.Unmarshal(key, &name) != nil {
			return nil, false
		}
		s.space()
		s.i++ // the colon
		s.space()
		from = s.i
		s.skip()
		fields = append(fields, field{name, text[from:s.i], from})
	}
	return fields, true
}

// A scanner walks over the text of a valid JSON value.
type scanner struct {
	text []byte
	i    int
}

func (s *scanner) at() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

func (s *scanner) space() {
	for s.i < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.i]) >= 0 {
		s.i++
	}
}

// skipText skips a string.
func (s *scanner) skipText() {
	for s.i++; s.i < len(s.text); s.i++ {
		n := bytes.IndexAny(s.text[s.i:], `"\`)
		if n < 0 {
			s.i = len(s.text)
			return
		}
		if s.i += n; s.text[s.i] == '"' {
			s.i++
			return
		}
		s.i++ // what is escaped
	}
}

// skip skips a value.
func (s *scanner) skip() {
	depth := 0
	for s.i < len(s.text) {
		switch c := s.text[s.i]; c {
		case '"':
			s.skipText()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return
			}
			if depth == 0 {
				s.i++
				return
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
		}
		s.i++
	}
}

// Parts are what the content of a request has that is not text.
type parts struct {
	media int // how many
	bytes int // of their data in base64
}

// textTypes are the types of the parts of a content, and of the items of an input, that
// are text. Every other part is media: an unknown kind may cost anything.
var textTypes = map[string]bool{
	"": true, "text": true, "input_text": true, "output_text": true, "summary_text": true, "reasoning_text": true, "refusal": true,
	"message": true, "thinking": true, "redacted_thinking": true, "reasoning": true, "tool_use": true, "tool_result": true,
	"server_tool_use": true, "web_search_tool_result": true, "web_search_result": true, "mcp_tool_use": true, "mcp_tool_result": true,
	"function_call": true, "function_call_output": true, "custom_tool_call": true, "custom_tool_call_output": true,
}

// partsOf counts the parts of a request that are not text.
func partsOf(text []byte) parts {
	s := scanner{text: text}
	var found parts
	s.value("", false, &found)
	return found
}

// value walks over a value below a key. Part says that it is a part of a content. It
// returns the bytes of base64 that belong to a part around it.
func (s *scanner) value(key string, part bool, found *parts) (data int) {
	s.space()
	switch s.at() {
	case '"':
		from := s.i
		s.skipText()
		if bytes.HasPrefix(s.text[from+1:], []byte("data:")) {
			return s.i - from - 2
		}
	case '[':
		s.i++
		listed := key == "content" || key == "output" || key == "input"
		for s.space(); s.i < len(s.text) && s.at() != ']'; s.space() {
			if s.at() == ',' {
				s.i++
				continue
			}
			data += s.value("", listed, found)
		}
		s.i++
	case '{':
		return s.object(key, part, found)
	default:
		s.skip()
	}
	return data
}

// object is value for an object.
func (s *scanner) object(under string, part bool, found *parts) (data int) {
	kind, own := "", 0 // own: the text of a field for data
	s.i++
	for s.space(); s.i < len(s.text) && s.at() != '}'; s.space() {
		if s.at() == ',' {
			s.i++
			continue
		}
		from := s.i
		s.skipText()
		key := string(s.text[from+1 : s.i-1])
		s.space()
		s.i++ // the colon
		s.space()
		from = s.i
		quoted := s.at() == '"'
		inner := s.value(key, false, found)
		switch length := s.i - from - 2; {
		case !quoted:
			data += inner
		case key == "type":
			kind = string(s.text[from+1 : s.i-1])
		case key == "data" || key == "file_data":
			own = length
		default:
			data += inner
		}
	}
	s.i++
	if kind != "text" {
		data += own
	}
	if !part && (under != "output" || kind == "") {
		return data
	}
	if !textTypes[kind] {
		found.media++
		found.bytes += data
	}
	return 0
}
