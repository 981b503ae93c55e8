package weirgrpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// KeyFunc says whose budget a call is charged to. Long keys are stored as
// digests. The error says that it cannot be known.
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

// KeyByMetadata keys by a digest of the first value that the client's metadata
// has for the name, such as an API token, which is not stored itself. All calls
// without it share a budget. Check the token before the limit: whoever can invent
// tokens has no limit.
func KeyByMetadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		value := ""
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			value = values[0]
		}
		return gate.Digest(value), nil
	}
}

// KeyByMethod keys by the method. Where a server has a handler for unknown
// services, clients can invent methods, with a fresh budget for each.
func KeyByMethod(_ context.Context, method string) (string, error) { return method, nil }

// JoinKeys keys by all of these together: calls share a budget where all of them
// agree. It fails where one of them does.
func JoinKeys(keys ...KeyFunc) KeyFunc {
	return func(ctx context.Context, method string) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(ctx, method)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		return gate.Join(parts...), nil
	}
}
