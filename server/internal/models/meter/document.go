package meter

// textKeys are the keys whose texts are output.
var textKeys = map[string]bool{
	"content": true, "text": true, "arguments": true, "thinking": true, "refusal": true, "reasoning_content": true, "reasoning": true,
	"partial_json": true, "transcript": true,
}

// maxUsage is the size of the largest usage that is kept, and maxKey that of a key, in
// bytes.
const (
	maxUsage = 64 << 10
	maxKey   = 32
)

// A document reads a JSON answer while it passes, and keeps its usage only.
type document struct {
	form     Form
	endpoint endpoint

	objects []bool // of the open values: an object, not an array
	inText  bool
	escaped bool
	isKey   bool // the text is a key, or the next one is
	key     []byte
	length  int64
	texts   int64 // bytes of output
	usage   []byte
	keeping bool
	found   bool
	whole   bool // its last object was closed
}

func (d *document) feed(to, came []byte) []byte {
	for _, c := range came {
		d.byte(c)
	}
	return append(to, came...)
}

func (d *document) rest(to []byte) []byte { return to }

func (d *document) state() (ended, broke bool) { return d.whole, false }

// byte reads one byte.
func (d *document) byte(c byte) {
	if d.keeping && len(d.usage) < maxUsage {
		ends := !d.inText && (c == ',' || c == '}') && len(d.objects) == 1
		if !ends {
			d.usage = append(d.usage, c)
		} else {
			d.keeping, d.found = false, true
		}
	}
	switch {
	case d.inText && d.escaped:
		d.escaped = false
		d.length++
	case d.inText && c == '\\':
		d.escaped = true
	case d.inText && c == '"':
		d.inText = false
		d.endText()
	case d.inText:
		d.length++
		if d.isKey && len(d.key) < maxKey {
			d.key = append(d.key, c)
		}
	case c == '"':
		d.inText, d.length = true, 0
		if d.isKey {
			d.key = d.key[:0]
		}
	case c == '{' || c == '[':
		d.objects = append(d.objects, c == '{')
		d.isKey = c == '{'
	case c == '}' || c == ']':
		d.objects = d.objects[:max(0, len(d.objects)-1)]
		d.isKey, d.whole = false, len(d.objects) == 0
	case c == ',':
		d.isKey = len(d.objects) > 0 && d.objects[len(d.objects)-1]
	case c == ':':
		d.isKey = false
		if len(d.objects) == 1 && string(d.key) == "usage" {
			d.keeping, d.usage = true, d.usage[:0]
		}
	}
}

// endText counts a text that is output.
func (d *document) endText() {
	if !d.isKey && textKeys[string(d.key)] {
		d.texts += d.length
	}
}

// end returns the usage of the answer.
func (d *document) end() (usage, string) {
	var r report
	if d.found {
		r, _ = readReport(d.usage)
	}
	return r.end(d.form, d.endpoint, ceil(d.texts, bytesPerToken))
}
