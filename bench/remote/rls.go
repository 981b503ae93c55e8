// Package remote asks servers for decisions: Weir's, its peers', and empty ones
// that show what the transport alone costs.
package remote

import (
	"context"
	"fmt"
	"sync/atomic"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// RLS asks a rate limit service of Envoy's protocol for one descriptor of one
// entry a call.
type RLS struct {
	domain, entry string
	conns         []*grpc.ClientConn
	clients       []rlsv3.RateLimitServiceClient
	turn          atomic.Uint64
}

// DialRLS opens so many connections to a server without TLS.
func DialRLS(address, domain, entry string, connections int) (*RLS, error) {
	r := &RLS{domain: domain, entry: entry}
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("bench: dial %s: %w", address, err)
		}
		r.conns = append(r.conns, conn)
		r.clients = append(r.clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	return r, nil
}

// Allow asks for one unit of the value key.
func (r *RLS) Allow(ctx context.Context, key string) (bool, error) {
	client := r.clients[r.turn.Add(1)%uint64(len(r.clients))]
	answer, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: r.domain,
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: r.entry, Value: key}},
		}},
	})
	return answer.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
}

// Close ends the connections.
func (r *RLS) Close() error {
	var err error
	for _, c := range r.conns {
		if e := c.Close(); err == nil {
			err = e
		}
	}
	return err
}
