package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/server/internal/admission"
)

const (
	// maxFields is the most fields of a request, and maxName the length of the longest name
	// of one, in bytes. Each field costs memory.
	maxFields = 1000
	maxName   = 128
	// fieldBytes is about what a field takes beside its value, and fieldStep how many are
	// charged at once.
	fieldBytes = 300
	fieldStep  = 16
)

// A field is a field of a JSON object; its value is a part of the text.
type field struct {
	name  string
	value []byte
	at    int // where the value begins
}

// fieldsOf returns the fields of a valid JSON value, which must be an object, and charges them
// to the memory of the request. What names the value. The error is a [*refusal] or
// [admission.ErrFull].
func fieldsOf(what string, text []byte, memory *admission.Body) ([]field, error) {
	s := scanner{text: text}
	if s.space(); s.at() != '{' {
		return nil, invalidBody(what + " is not a JSON object")
	}
	var fields []field
	for s.i++; s.next('}'); {
		switch {
		case len(fields) == maxFields:
			return nil, invalidBody(fmt.Sprintf("%s has more than %d fields", what, maxFields))
		case len(fields)%fieldStep == 0:
			if err := memory.Grow(fieldStep * fieldBytes); err != nil {
				return nil, err
			}
		}
		name := s.name()
		if len(name) > maxName {
			return nil, invalidBody(fmt.Sprintf("the name of the field %q has %d bytes: at most %d", shortened(name), len(name), maxName))
		}
		from := s.i
		s.skip()
		fields = append(fields, field{string(name), text[from:s.i], from})
	}
	return fields, nil
}

// spelling writes a name in lower case, without anything but letters and digits: all names
// that one reader or another takes for the same are equal then. It cuts long names, which
// are nobody's.
func spelling(to, name []byte) []byte {
	for i := 0; i < len(name) && len(to) < maxName; {
		if c := name[i]; 'a' <= c && c <= 'z' {
			to = append(to, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		i += n
		switch {
		case r == 'ſ' || r == '\u212a': // the long s, and the sign of Kelvin
			r = unicode.ToLower(unicode.ToUpper(r))
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			continue
		}
		to = utf8.AppendRune(to, unicode.ToLower(r))
	}
	return to
}

// unquoted returns a JSON text without its quotes and escapes.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var plain string
	_ = json.Unmarshal(text, &plain) // It is valid.
	return []byte(plain)
}

// A scanner walks over a valid JSON value.
type scanner struct {
	text []byte
	i    int

	in    string // the field of the request that it walks over
	found *parts
	err   error // a [*refusal]; the walk ends at it
}

func (s *scanner) at() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

// space skips space, which alone is below the visible characters outside of texts.
func (s *scanner) space() {
	for s.i < len(s.text) && s.text[s.i] <= ' ' {
		s.i++
	}
}

// next moves to the next element of an array or an object, or behind it after the last one.
func (s *scanner) next(end byte) bool {
	if s.space(); s.at() == ',' {
		s.i++
		s.space()
	}
	if s.at() == end || s.i >= len(s.text) {
		s.i++
		return false
	}
	return true
}

// name reads the name of a field, and moves to the value.
func (s *scanner) name() []byte {
	name := s.string()
	s.space()
	s.i++ // the colon
	s.space()
	return name
}

// string reads a text.
func (s *scanner) string() []byte {
	from := s.i
	s.skipText()
	return unquoted(s.text[from:s.i])
}

// skipText skips a text.
func (s *scanner) skipText() {
	for i := s.i + 1; i < len(s.text); i++ {
		switch s.text[i] {
		case '"':
			s.i = i + 1
			return
		case '\\':
			i++ // what is escaped
		}
	}
	s.i = len(s.text)
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

// refuse ends the walk: the provider may read the request otherwise.
func (s *scanner) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = invalidBody(fmt.Sprintf("%q: %s", s.in, fmt.Sprintf(format, args...)))
	}
}

// unbounded notes that something has no bound; the first of it counts.
func (s *scanner) unbounded(format string, name []byte) {
	if s.found.unbounded == "" {
		s.found.unbounded = fmt.Sprintf("%q: "+format, s.in, shortened(name))
	}
}

// media notes a part that is not text, with so many bytes of base64.
func (s *scanner) media(kind []byte, data int) {
	s.found.media++
	s.found.bytes += data
	if len(kind) == 0 {
		kind = []byte("none")
	}
	s.unbounded("a part of the type %q has no bound", kind)
}

// Parts are what the content of a request has beside text.
type parts struct {
	media int // how many
	bytes int // of their data in base64
	// unbounded names something whose cost has no bound, and its field; empty: there is
	// nothing.
	unbounded string
}

// textTypes are the types of the parts of a content, and of the items of an input, that
// are text. Every other part is media: an unknown kind may cost anything.
var textTypes = map[string]bool{
	"text": true, "input_text": true, "output_text": true, "summary_text": true, "reasoning_text": true, "refusal": true,
	"message": true, "thinking": true, "redacted_thinking": true, "reasoning": true, "tool_use": true, "tool_result": true,
	"server_tool_use": true, "web_search_tool_result": true, "web_search_result": true, "web_search_tool_result_error": true,
	"mcp_tool_use": true, "mcp_tool_result": true,
	"function_call": true, "function_call_output": true, "custom_tool_call": true, "custom_tool_call_output": true,
}

// ownTools are the types of tools that the client runs. The provider runs the others, or
// describes them to the model in a text of its own.
var ownTools = map[string]bool{"": true, "function": true, "custom": true}

// A level says what the objects of a list are.
type level uint8

const (
	turn   level = iota // of a conversation
	item                // of the input of a response: a turn, or what its type says
	part                // of a content
	source              // of a part
	tool
	text // no object: texts, tokens, and lists of them
)

// A word is a name that is read below the top level.
type word uint16

const (
	wordType word = 1 << iota
	wordRole
	wordContent
	wordOutput
	wordSource
	wordAudio
	wordData
	wordFileData
	wordEncrypted
)

var (
	words = map[string]struct {
		name string
		word word
	}{
		"type": {"type", wordType}, "role": {"role", wordRole}, "content": {"content", wordContent}, "output": {"output", wordOutput},
		"source": {"source", wordSource}, "audio": {"audio", wordAudio}, "data": {"data", wordData}, "filedata": {"file_data", wordFileData},
		"encryptedcontent": {"encrypted_content", wordEncrypted},
	}
	wordsOf = [...]word{
		turn:   wordRole | wordContent | wordAudio,
		item:   wordType | wordRole | wordContent | wordOutput | wordEncrypted,
		part:   wordType | wordContent | wordOutput | wordSource | wordData | wordFileData,
		source: wordType | wordContent | wordData,
		tool:   wordType,
	}
)

// word reads the name of a field of an object, and moves to the value. It returns 0 for one
// that is not read, and refuses one that is there twice or in another spelling.
func (s *scanner) word(of level, seen *word) word {
	name := s.name()
	if len(name) == 0 {
		return 0
	}
	var buffer [maxName + utf8.UTFMax]byte
	known, ok := words[string(spelling(buffer[:0], name))]
	switch {
	case !ok || known.word&wordsOf[of] == 0:
		return 0
	case string(name) != known.name:
		s.refuse("the field %q is another spelling of %q", shortened(name), known.name)
	case *seen&known.word != 0:
		s.refuse("the field %q is there twice in one object", known.name)
	}
	*seen |= known.word
	return known.word
}

// list walks over a list of objects; a text in its place is one text. It returns the bytes
// of base64 that belong to the part around it.
func (s *scanner) list(of level) (data int) {
	objects := of == turn || of == item || of == tool
	switch c := s.at(); {
	case c == '"' && of != turn && of != tool:
		return s.blob()
	case c == '{' && of == part:
		return s.object(part)
	case c == 'n':
		s.skip()
	case c == '[':
		for s.i++; s.err == nil && s.next(']'); {
			switch c := s.at(); {
			case c == '{' && of != text:
				data += s.object(of)
			case c == '{':
				s.media([]byte("object"), s.blob())
			case objects:
				s.refuse("it has something else than objects")
			default:
				s.skip()
			}
		}
	default:
		s.refuse("it is of another type than a list")
	}
	return data
}

// object walks over an object of a list.
func (s *scanner) object(of level) (data int) {
	var seen word
	var kind []byte
	own, encrypted, audio := 0, false, false // own: the length of a field for data
	for s.i++; s.err == nil && s.next('}'); {
		w := s.word(of, &seen)
		quoted, null := s.at() == '"', s.at() == 'n'
		switch {
		case w == wordType && quoted:
			kind = s.string()
		case w == wordType && !null:
			s.refuse("a type is not a text")
		case w == wordContent || w == wordOutput:
			data += s.list(part)
		case w == wordSource && s.at() == '{':
			data += s.object(source)
		case (w == wordData || w == wordFileData) && quoted:
			from := s.i
			s.skipText()
			own += s.i - from - len(`""`)
		default:
			encrypted = encrypted || w == wordEncrypted && quoted
			audio = audio || w == wordAudio && !null
			data += s.blob()
		}
	}
	if string(kind) != "text" {
		data += own
	}
	stored := of == item && (string(kind) == "item_reference" || len(kind) == 0 && seen&wordRole == 0)
	switch {
	case of == source:
		return data
	case of == tool && !ownTools[string(kind)]:
		s.unbounded("a tool of the type %q has no bound", kind)
	case audio:
		s.media([]byte("audio"), 0)
	case stored:
		s.unbounded("an item of the type %q is stored at the provider and has no bound", kind)
		s.media(kind, 0)
	case string(kind) == "reasoning" && of == item && !encrypted:
		s.unbounded("%s without its encrypted content is stored at the provider and has no bound", kind)
	case of == part && !textTypes[string(kind)], of == item && len(kind) > 0 && !textTypes[string(kind)]:
		s.media(kind, data)
	}
	return 0
}

// blob walks over a value that is no part of a conversation, and returns the bytes of base64
// in it: those of addresses with data, and of fields for data.
func (s *scanner) blob() (data int) {
	switch s.at() {
	case '"':
		from := s.i
		s.skipText()
		if bytes.HasPrefix(s.text[from+1:], []byte("data:")) {
			return s.i - from - len(`""`)
		}
	case '[':
		for s.i++; s.next(']'); {
			data += s.blob()
		}
	case '{':
		for s.i++; s.next('}'); {
			name, from := s.name(), s.i
			quoted := s.at() == '"'
			inner := s.blob()
			if quoted && (string(name) == "data" || string(name) == "file_data") {
				inner = s.i - from - len(`""`)
			}
			data += inner
		}
	default:
		s.skip()
	}
	return data
}
