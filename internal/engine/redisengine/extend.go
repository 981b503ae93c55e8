package redisengine

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// An Extension is Lua that runs inside the script of a store, so that an act and the changes
// that depend on it are applied together or not at all. It is safe for concurrent use. Create
// it with NewExtension.
type Extension struct {
	name   string
	script script
}

// NewExtension returns an extension whose keys carry the name, letters only. Its Lua has
// three parts, in this order. The opening runs before the act is decided and may define
// locals. After a line "-- @before" comes the part that runs when the act is decided
// and nothing is written: it can read, check, and return without writing. After a line
// "-- @after" comes the part that runs when the act is written. lua/extend.lua
// documents the variables. Like the store's own, it must not be able to fail once
// anything is written. It panics if a section is missing.
func NewExtension(name, lua string) *Extension {
	opening, rest, found := strings.Cut(lua, "-- @before\n")
	before, after, closed := strings.Cut(rest, "-- @after\n")
	if !found || !closed {
		panic("redisengine: the extension " + name + " lacks a section before or after")
	}
	return &Extension{name: name, script: weave(section("clock"), section("extend")+opening, before, after)}
}

// Of returns the store inside one of the public package redisstore, which sets it: this package
// cannot name that type, and programs have no use for the store inside.
var Of func(public any) *Store

// HashTag returns the hash tag of a key, as the public package documents it.
func HashTag(key string) (string, bool) {
	if _, rest, opened := strings.Cut(key, "{"); opened {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag, true
		}
	}
	return key, key != "" && !strings.Contains(key, "}")
}

// Key returns the name of a key of the extension, in the hash slot of a tag that [HashTag]
// returned. The letter tells kinds of keys apart.
func (x *Extension) Key(s *Store, tag string, letter byte, text string) string {
	return s.keys.under(x.name, tag).join("", key{text: text, letter: letter, format: extensionFormat})
}

const extensionFormat = '1'

// Run decides the act and runs the extension in one script call, sent once, and returns
// the extension's reply. The keys of the act and of the extension lie in the hash slot of
// the tag; keys and args become XKEYS and XARGV. Nothing runs if the act is answered
// without a store, by its Err or by a limit with a count of 0. Errors are those of the
// store's Take; an error that the Lua raised wraps [weir.ErrBackend].
func (x *Extension) Run(ctx context.Context, s *Store, a *weir.Act, tag string, keys []string, args []any) (string, error) {
	c := extended{Store: s, x: x, tag: tag, keys: keys, args: args}
	weir.TakeValid(ctx, []*weir.Act{a}, c.take)
	return c.reply, cmp.Or(c.err, a.Err)
}

// An extended decides a valid act with an extension.
type extended struct {
	*Store
	x     *Extension
	tag   string
	keys  []string
	args  []any
	reply string
	err   error
}

func (c *extended) take(ctx context.Context, all []*weir.Act) {
	if acts.Prepare(all[0]) {
		return
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	got, err := c.run(ctx, all[0], c.estimate())
	if err == nil && got.outside > 0 {
		c.offset.Store(got.outside - time.Now().UnixMicro())
		all[0].Err = nil
		got, err = c.run(ctx, all[0], got.outside)
	}
	c.reply, c.err = got.more, err
}

func (c *extended) run(ctx context.Context, a *weir.Act, now int64) (answer, error) {
	b := newBatch(c.Store.keys.under(c.x.name, c.tag), now)
	b.extended = true
	b.add(a)
	b.pack(c.keys, append([]any{len(b.keys.all)}, c.args...)...)
	b.script = &c.x.script
	return c.send(ctx, b)
}
