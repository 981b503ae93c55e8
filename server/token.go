package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
)

const (
	maxTokenFile = 64 << 10
	minToken     = 16 // bytes: what can be guessed protects nothing
	// minPassword lets Redis clients keep what they say to Redis.
	minPassword = 1
	// tokenPause is how long a file that changed may go unnoticed.
	tokenPause = time.Second
)

// errToken is what callers without a token are told.
const errToken = "a token is needed: want Authorization: Bearer TOKEN"

// tokens are what callers of a door have to know, from a file with one a line: several,
// so that they can be changed without a moment in which somebody is locked out. The
// file is looked at again when calls come. Nothing here is ever logged or told but
// the setting's and the file's name. A nil *tokens asks for none.
type tokens struct {
	setting string // that names the file
	file    string
	least   int // bytes of each
	logger  *slog.Logger
	checked atomic.Int64 // when the file was looked at last, in unix nanoseconds
	known   atomic.Pointer[[][sha256.Size]byte]
	read    atomic.Pointer[[]byte] // the text that was read last, good or not
}

// newTokens reads the file that a setting names; nil where there is none.
func newTokens(setting, file string, least int, logger *slog.Logger) (*tokens, error) {
	if file == "" {
		return nil, nil
	}
	t := &tokens{setting: setting, file: file, least: least, logger: logger}
	text, err := t.text()
	if err != nil {
		return nil, err
	}
	known, err := t.parse(text)
	if err != nil {
		return nil, err
	}
	t.read.Store(&text)
	t.known.Store(&known)
	t.checked.Store(time.Now().UnixNano())
	return t, nil
}

// text reads the file, as far as one can be that is not too large.
func (t *tokens) text() ([]byte, error) {
	f, err := os.Open(t.file)
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", t.setting, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", t.setting, err)
	}
	return text, nil
}

// parse returns the digests of a file's tokens.
func (t *tokens) parse(text []byte) ([][sha256.Size]byte, error) {
	wrong := func(why, want string) error {
		return &weir.InvalidError{Field: t.setting, Value: strconv.Quote(t.file) + ", " + why, Want: want}
	}
	if len(text) > maxTokenFile {
		return nil, wrong("which is too large", fmt.Sprintf("at most %d bytes", maxTokenFile))
	}
	var known [][sha256.Size]byte
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) < t.least || strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, wrong(fmt.Sprintf("whose line %d is wrong", i+1), fmt.Sprintf("at least %d characters that ASCII shows, without spaces", t.least))
		}
		known = append(known, sha256.Sum256([]byte(line)))
	}
	if len(known) == 0 {
		return nil, wrong("which is empty", "a secret on each line")
	}
	return known, nil
}

// refresh reads the file again if that is due. One that is wrong leaves the tokens
// in force that are.
func (t *tokens) refresh() {
	now, last := time.Now().UnixNano(), t.checked.Load()
	if now-last < tokenPause.Nanoseconds() || !t.checked.CompareAndSwap(last, now) {
		return
	}
	text, err := t.text()
	if err == nil && bytes.Equal(text, *t.read.Load()) {
		return
	}
	var known [][sha256.Size]byte
	if err == nil {
		t.read.Store(&text)
		known, err = t.parse(text)
	}
	if err != nil {
		t.logger.Error("a file with secrets is wrong; those in force stay", "error", err)
		return
	}
	t.known.Store(&known)
	t.logger.Info("a file with secrets changed and is in force", "setting", t.setting, "file", t.file, "secrets", len(known))
}

// admits reports whether a token is known, in a time that says nothing about how
// much of it is right.
func (t *tokens) admits(token string) bool {
	t.refresh()
	digest, found := sha256.Sum256([]byte(token)), 0
	for _, known := range *t.known.Load() {
		found |= subtle.ConstantTimeCompare(digest[:], known[:])
	}
	return found == 1
}

// check is admits for doors that are told only how to ask; nil where there is
// nothing to know.
func (t *tokens) check() func(said string) bool {
	if t == nil {
		return nil
	}
	return t.admits
}

// knows reports whether a caller knows a token, as Bearer or as the password of Basic,
// which proxies can write into a URL. Where there is none, nobody does.
func (t *tokens) knows(r *http.Request) bool {
	if t == nil {
		return false
	}
	token, given := bearer(r.Header["Authorization"])
	if _, password, basic := r.BasicAuth(); basic && len(r.Header["Authorization"]) == 1 {
		token, given = password, true
	}
	return given && t.admits(token)
}

// guard lets callers through who know a token.
func (t *tokens) guard(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.knows(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
		(&problem.Document{Status: http.StatusUnauthorized, Detail: errToken, Field: "authorization"}).Write(w, r)
	})
}

// unary is guard for gRPC calls of the rate limit service.
func (t *tokens) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if t == nil || !strings.HasPrefix(info.FullMethod, guardedService) {
		return next(ctx, req)
	}
	if token, given := bearer(metadata.ValueFromIncomingContext(ctx, "authorization")); !given || !t.admits(token) {
		return nil, status.Error(codes.Unauthenticated, errToken)
	}
	return next(ctx, req)
}

// guardedService begins the names of the methods that ask for a token: not those
// of health checks.
const guardedService = "/envoy.service.ratelimit."

// bearer returns the token of a request's only Authorization.
func bearer(values []string) (token string, given bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), found && strings.EqualFold(scheme, "Bearer")
}
