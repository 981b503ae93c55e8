package config

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
)

// Fingerprint tells whether what [Load] would read has changed: the names and
// the contents of the files, and the reasons why some cannot be read.
func Fingerprint(paths ...string) [sha256.Size]byte {
	l := loader{seen: map[string]bool{}}
	for _, path := range paths {
		l.path(path)
	}
	h := sha256.New()
	write := func(text []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		_, _ = h.Write(text)
	}
	for _, file := range l.files[:min(len(l.files), maxFiles+1)] {
		write([]byte(file))
		text, err := read(file)
		if err != nil {
			l.fail(file, reason(err), "")
		}
		write(text)
	}
	_, _ = io.WriteString(h, l.problems.Error())
	return [sha256.Size]byte(h.Sum(nil))
}
