package acts

import (
	"context"

	"github.com/weirlimit/weir"
)

// An Extension is Lua that runs inside the script of a store in Redis, so that an act and
// the changes that depend on it are applied together or not at all. It is safe for
// concurrent use. A store is a *redisstore.Store.
type Extension interface {
	// Key returns the name of a key of the extension, in the hash slot of a tag that
	// redisstore.HashTag returned. The letter tells kinds of keys apart.
	Key(store any, tag string, letter byte, text string) string
	// Run decides the act and runs the extension in one script call, sent once, and returns
	// the extension's reply. The keys of the act and of the extension lie in the hash slot of
	// the tag; keys and args become XKEYS and XARGV. Nothing runs if the act is answered
	// without a store, by its Err or by a limit with a count of 0. Errors are those of the
	// store's Take; an error that the Lua raised wraps [weir.ErrBackend].
	Run(ctx context.Context, store any, a *weir.Act, tag string, keys []string, args []any) (string, error)
}

// NewExtension returns an extension whose keys carry the name, letters only. Its Lua has
// three parts, in this order. The opening runs before the act is decided and may define
// locals. After a line "-- @before" comes the part that runs when the act is decided
// and nothing is written: it can read, check, and return without writing. After a line
// "-- @after" comes the part that runs when the act is written. lua/extend.lua
// documents the variables. Like the store's own, it must not be able to fail once
// anything is written. It panics if a section is missing. Package redisstore sets it.
var NewExtension func(name, lua string) Extension
