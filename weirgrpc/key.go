package weirgrpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// KeyFunc returns the key whose budget a call is charged to. Long keys are stored as
// digests. An error means that the call has no key.
type KeyFunc func(ctx context.Context, method string) (string, error)

// KeyByIP keys by the client's address, as the strategy finds it in the peer and
// the metadata: IPv4 by itself, IPv6 by its network.
func KeyByIP(strategy clientip.Strategy) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		r := &http.Request{Header: http.Header{}}
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		for name, values := range md {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		return strategy.Key(r)
	}
}

// KeyByMetadata keys by a digest of the first value of a name in the client's metadata,
// such as an API token; the value itself is not stored. All calls without it share a
// budget. Check the token before the limit: a client that can invent tokens has no limit.
func KeyByMetadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		value := ""
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			value = values[0]
		}
		return MetadataKey(value), nil
	}
}

// MetadataKey returns the key that [KeyByMetadata] gives to calls whose metadata has this value.
// Use it to peek, refund or override such a key, or to charge it elsewhere.
func MetadataKey(value string) string { return gate.Digest(value) }

// KeyByMethod keys by the method. If a server has a handler for unknown services, clients
// can invent methods, and each method has a fresh budget.
func KeyByMethod(_ context.Context, method string) (string, error) { return method, nil }

// JoinKeys combines keys: calls share a budget if all their keys agree. It fails if one
// of them fails.
func JoinKeys(keys ...KeyFunc) KeyFunc {
	return func(ctx context.Context, method string) (string, error) {
		return gate.Join(len(keys), func(i int) (string, error) { return keys[i](ctx, method) })
	}
}
