package callers

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// maxFile is the size of the largest file, in bytes.
	maxFile = 64 << 10
	// rereadAfter is how long a file that changed may go unnoticed.
	rereadAfter = time.Second
)

// Secrets are the tokens or passwords of a file, one a line: several, so that they can
// be changed while callers still use the old one. The file is read again when calls
// come, at most once a second; a file that is wrong leaves the secrets in force that
// are. Nothing here is ever logged but the names of the setting and the file. Secrets
// are safe for concurrent use.
type Secrets struct {
	setting string
	file    string
	least   int
	logger  *slog.Logger
	checked atomic.Int64 // when the file was read last, in unix nanoseconds
	known   atomic.Pointer[[][sha256.Size]byte]
	read    atomic.Pointer[[]byte] // the text that was read last, good or not
}

// SecretsFile names a file of secrets.
type SecretsFile struct {
	// Setting is the option that names the file, for errors: "http token file".
	Setting string
	File    string
	// Least is how many bytes each secret has at least.
	Least int
	// Logger is told of changes. Nil: nothing is logged.
	Logger *slog.Logger
}

// Open reads the file; it returns nil if there is none. The error names the setting,
// and never repeats a secret.
func (f SecretsFile) Open() (*Secrets, error) {
	if f.File == "" {
		return nil, nil
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Secrets{setting: f.Setting, file: f.File, least: f.Least, logger: f.Logger}
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	known, err := s.parse(text)
	if err != nil {
		return nil, err
	}
	s.read.Store(&text)
	s.known.Store(&known)
	s.checked.Store(time.Now().UnixNano())
	return s, nil
}

// text reads the file up to the size that is too large.
func (s *Secrets) text() ([]byte, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", s.setting, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", s.setting, err)
	}
	return text, nil
}

// parse returns the digests of a file's secrets.
func (s *Secrets) parse(text []byte) ([][sha256.Size]byte, error) {
	wrong := func(why, want string) error {
		return &weir.InvalidError{Field: s.setting, Value: strconv.Quote(s.file) + ", " + why, Want: want}
	}
	if len(text) > maxFile {
		return nil, wrong("which is too large", fmt.Sprintf("at most %d bytes", maxFile))
	}
	var known [][sha256.Size]byte
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) < s.least || strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, wrong(fmt.Sprintf("whose line %d is wrong", i+1), fmt.Sprintf("at least %d characters that ASCII shows, without spaces", s.least))
		}
		known = append(known, sha256.Sum256([]byte(line)))
	}
	if len(known) == 0 {
		return nil, wrong("which is empty", "a secret on each line")
	}
	return known, nil
}

// refresh reads the file again if that is due.
func (s *Secrets) refresh() {
	now, last := time.Now().UnixNano(), s.checked.Load()
	if now-last < rereadAfter.Nanoseconds() || !s.checked.CompareAndSwap(last, now) {
		return
	}
	text, err := s.text()
	if err == nil && bytes.Equal(text, *s.read.Load()) {
		return
	}
	var known [][sha256.Size]byte
	if err == nil {
		s.read.Store(&text)
		known, err = s.parse(text)
	}
	if err != nil {
		s.logger.Error("a file with secrets is wrong; those in force stay", "error", err)
		return
	}
	s.known.Store(&known)
	s.logger.Info("a file with secrets changed and is in force", "setting", s.setting, "file", s.file, "secrets", len(known))
}

// Has reports whether a secret is one of them, in a time that says nothing about how
// much of it is right.
func (s *Secrets) Has(secret string) bool {
	s.refresh()
	digest, found := sha256.Sum256([]byte(secret)), 0
	for _, known := range *s.known.Load() {
		found |= subtle.ConstantTimeCompare(digest[:], known[:])
	}
	return found == 1
}
