package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// An Extension is Lua that runs inside the store's script, so that an act and the changes
// that depend on it are applied together or not at all. It is for packages that keep data
// of their own in Redis. It is immutable and safe for concurrent use; create it with
// [NewExtension].
type Extension struct {
	name   string
	script script
}

// NewExtension returns an extension whose keys carry the name, letters only. Its Lua has
// three parts, in this order. The opening runs before the acts are decided and may define
// locals. After a line "-- @before" comes the part that runs when the acts are decided
// and nothing is written: it can read, check, and return without writing. After a line
// "-- @after" comes the part that runs when the acts are written. lua/extend.lua
// documents the variables. Like the store's own, it must not be able to fail once
// anything is written. NewExtension panics if a section is missing.
func NewExtension(name, lua string) *Extension {
	opening, rest, found := strings.Cut(lua, "-- @before\n")
	before, after, closed := strings.Cut(rest, "-- @after\n")
	if !found || !closed {
		panic("redisstore: the extension " + name + " lacks a section before or after")
	}
	return &Extension{name: name, script: weave(section("clock"), section("extend")+opening, before, after)}
}

// HashTag returns the part of a key that determines its hash slot in a Redis Cluster: the
// text between its first brace and the next closing one, or else the whole key. It
// reports whether other keys can be put into the same slot, which is impossible if that
// part is empty or contains a closing brace.
func HashTag(key string) (string, bool) {
	if _, rest, opened := strings.Cut(key, "{"); opened {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag, true
		}
	}
	return key, key != "" && !strings.Contains(key, "}")
}

// Key returns the name of a key of an extension, in the hash slot of a tag that [HashTag]
// returned. The letter distinguishes the extension's kinds of keys.
func (s *Store) Key(x *Extension, tag string, letter byte, text string) string {
	return s.keys.under(x.name, tag).join("", key{text: text, letter: letter, format: extensionFormat})
}

const extensionFormat = '1'

// A Call is one run of an extension.
type Call struct {
	// Act is decided first; its keys lie in the hash slot of Tag.
	Act *weir.Act
	Tag string
	// Keys and Args become XKEYS and XARGV of the extension. The keys must lie in the
	// hash slot of Tag.
	Keys []string
	Args []any
}

// Run decides the act and runs the extension in one script call, sent once, and returns
// the extension's reply. Nothing runs if the act is answered without a store, by its Err
// or by a limit with a count of 0. Errors are those of [Store.Take]; an error that the
// Lua raised wraps [weir.ErrBackend].
func (s *Store) Run(ctx context.Context, x *Extension, c Call) (string, error) {
	if c.Act.Prepare() {
		return "", c.Act.Err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	got, err := s.extended(ctx, x, c, s.estimate())
	if err == nil && got.outside > 0 {
		s.offset.Store(got.outside - time.Now().UnixMicro())
		c.Act.Err = nil
		got, err = s.extended(ctx, x, c, got.outside)
	}
	if err == nil {
		err = c.Act.Err
	}
	return got.more, err
}

func (s *Store) extended(ctx context.Context, x *Extension, c Call, now int64) (answer, error) {
	b := newBatch(s.keys.under(x.name, c.Tag), now)
	b.extended = true
	b.add(c.Act)
	b.pack(c.Keys, append([]any{len(b.keys.all)}, c.Args...)...)
	b.script = &x.script
	return s.send(ctx, b)
}
