package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// RLS asks a rate limit service of Envoy's protocol for one descriptor of one
// entry a call. It is safe for concurrent use.
type RLS struct {
	options Options
	conns   []*grpc.ClientConn
	clients []rlsv3.RateLimitServiceClient
	turn    atomic.Uint64
}

// DialRLS returns a client of a server. It connects to nothing yet.
func DialRLS(address string, o Options) (*RLS, error) {
	r := &RLS{options: o}
	secured := insecure.NewCredentials()
	if o.TLS != nil {
		secured = credentials.NewTLS(o.TLS)
	}
	for range o.Connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secured))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial %s: %w", address, err), r.Close())
		}
		r.conns = append(r.conns, conn)
		r.clients = append(r.clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	return r, nil
}

// Allow asks for one unit of the value key.
func (r *RLS) Allow(ctx context.Context, key string) (bool, error) {
	if bearer := r.options.bearer(); bearer != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", bearer)
	}
	client := r.clients[r.turn.Add(1)%uint64(len(r.clients))]
	answer, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: r.options.Domain,
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: r.options.Entry, Value: key}},
		}},
	})
	return answer.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
}

// Close ends the connections.
func (r *RLS) Close() error {
	var err error
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}
