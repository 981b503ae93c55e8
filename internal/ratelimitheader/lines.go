package ratelimitheader

import "net/http"

// maxLines is how many headers are written together.
const maxLines = 5

// lines are headers whose values are cut from one text.
type lines struct {
	keys [maxLines]string
	ends [maxLines]int
	n    int
}

// end makes what was appended to the text since the last one the value of a header.
func (l *lines) end(key string, text []byte) {
	l.keys[l.n], l.ends[l.n] = key, len(text)
	l.n++
}

// write sets the headers, and adds to those that are lists.
func (l *lines) write(h http.Header, text string) {
	values, from := make([]string, l.n), 0
	for i, key := range l.keys[:l.n] {
		values[i] = text[from:l.ends[i]]
		from = l.ends[i]
		value := values[i : i+1 : i+1]
		if list := key == keyPolicy || key == keyRateLimit; list && h[key] != nil {
			value = append(h[key], value...)
		}
		h[key] = value
	}
}
