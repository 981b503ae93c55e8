package callers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// Secrets are the tokens or passwords of a file, one a line: several, so that they can
// be changed while callers still use the old one. Nothing here is ever logged but the names of the setting and the file.
// Secrets are safe for concurrent use.
type Secrets struct{ watched watched[[][sha256.Size]byte] }

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
	s := &Secrets{watched[[][sha256.Size]byte]{setting: f.Setting, file: f.File, logger: f.Logger, parse: f.parse}}
	if err := s.watched.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// parse returns the digests of a file's secrets.
func (f *SecretsFile) parse(text []byte) ([][sha256.Size]byte, error) {
	wrong := func(why, want string) error {
		return &weir.InvalidError{Field: f.Setting, Value: strconv.Quote(f.File) + ", " + why, Want: want}
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
		if len(line) < f.Least || strings.ContainsFunc(line, invisible) {
			return nil, wrong(fmt.Sprintf("whose line %d is wrong", i+1), fmt.Sprintf("at least %d characters that ASCII shows, without spaces", f.Least))
		}
		known = append(known, sha256.Sum256([]byte(line)))
	}
	if len(known) == 0 {
		return nil, wrong("which is empty", "a secret on each line")
	}
	return known, nil
}

// Refresh reads the file every second until ctx ends, and puts changes in force. It returns
// late, or never, if the file system does not answer. Call it once.
func (s *Secrets) Refresh(ctx context.Context) { s.watched.refresh(ctx) }

// version tells the secrets in force from those before and after; nil without a file.
func (s *Secrets) version() *[][sha256.Size]byte {
	if s == nil {
		return nil
	}
	return s.watched.known.Load()
}

// Has reports whether a secret is one of them, in a time that says nothing about how
// much of it is right.
func (s *Secrets) Has(secret string) bool {
	digest, found := sha256.Sum256([]byte(secret)), 0
	for _, known := range s.watched.get() {
		found |= subtle.ConstantTimeCompare(digest[:], known[:])
	}
	return found == 1
}

// A Key is the credential for another service in a file, which has one line. It is safe for
// concurrent use.
type Key struct{ watched watched[string] }

// OpenKey reads the file of a credential; it returns nil if there is none. The error names the
// setting, and never repeats the credential. The logger, which may be nil, is told of changes.
func OpenKey(setting, file string, logger *slog.Logger) (*Key, error) {
	if file == "" {
		return nil, nil
	}
	k := &Key{watched[string]{setting: setting, file: file, logger: logger, parse: func(text []byte) (string, error) {
		key := strings.TrimRight(string(text), "\r\n")
		if key == "" || len(text) > maxFile || strings.ContainsFunc(key, invisible) {
			return "", &weir.InvalidError{Field: setting, Value: strconv.Quote(file), Want: "a file with one line, the key: characters that ASCII shows, without spaces"}
		}
		return key, nil
	}}}
	if err := k.watched.open(); err != nil {
		return nil, err
	}
	return k, nil
}

// Refresh reads the file every second until ctx ends, and puts changes in force. It returns
// late, or never, if the file system does not answer. Call it once.
func (k *Key) Refresh(ctx context.Context) { k.watched.refresh(ctx) }

// Get returns the credential.
func (k *Key) Get() string { return k.watched.get() }

// invisible reports whether a character cannot be one of a secret.
func invisible(r rune) bool { return r <= ' ' || r > '~' }
