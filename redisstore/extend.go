package redisstore

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

func init() { acts.NewExtension = newExtension }

// An extension is an [acts.Extension].
type extension struct {
	name   string
	script script
}

func newExtension(name, lua string) acts.Extension {
	opening, rest, found := strings.Cut(lua, "-- @before\n")
	before, after, closed := strings.Cut(rest, "-- @after\n")
	if !found || !closed {
		panic("redisstore: the extension " + name + " lacks a section before or after")
	}
	return &extension{name: name, script: weave(section("clock"), section("extend")+opening, before, after)}
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

// Key returns the name of a key of the extension.
func (x *extension) Key(store any, tag string, letter byte, text string) string {
	return store.(*Store).keys.under(x.name, tag).join("", key{text: text, letter: letter, format: extensionFormat})
}

const extensionFormat = '1'

// Run decides the act and runs the extension.
func (x *extension) Run(ctx context.Context, store any, a *weir.Act, tag string, keys []string, args []any) (string, error) {
	c := extended{Store: store.(*Store), x: x, tag: tag, keys: keys, args: args}
	weir.TakeValid(ctx, &c, []*weir.Act{a})
	return c.reply, cmp.Or(c.err, a.Err)
}

// An extended is the Taker of a valid act with an extension.
type extended struct {
	*Store
	x     *extension
	tag   string
	keys  []string
	args  []any
	reply string
	err   error
}

// Take decides the act and runs the extension.
func (c *extended) Take(ctx context.Context, all []*weir.Act) {
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
