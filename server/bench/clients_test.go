package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A caller asks a server for decisions of one unit each.
type caller struct {
	allow func(ctx context.Context, key string) (granted bool, err error)
	close func() error
}

// dialHTTP returns a client that sends GET requests to prefix with the key, escaped, appended. It
// speaks HTTP/1.1, as most proxies do.
func dialHTTP(prefix string, connections int) caller {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = connections, connections, connections
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	c := &http.Client{Transport: transport}
	return caller{close: func() error { c.CloseIdleConnections(); return nil }, allow: func(ctx context.Context, key string) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, prefix+url.QueryEscape(key), nil)
		if err != nil {
			return false, err
		}
		response, err := c.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return false, err
		}
		if response.StatusCode/100 != 2 && response.StatusCode != http.StatusTooManyRequests {
			return false, fmt.Errorf("%s answers %s", prefix, response.Status)
		}
		return response.StatusCode/100 == 2, nil
	}}
}

// dialRLS returns a client of Envoy's rate limit service at address. It sends one descriptor of one
// entry, whose value is the key.
func dialRLS(address string, connections int, domain, entry string) (caller, error) {
	var conns []*grpc.ClientConn
	var clients []rlsv3.RateLimitServiceClient
	var next atomic.Uint64
	c := caller{close: func() (err error) {
		for _, conn := range conns {
			err = errors.Join(err, conn.Close())
		}
		return err
	}}
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return c, errors.Join(err, c.close())
		}
		conns, clients = append(conns, conn), append(clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	c.allow = func(ctx context.Context, key string) (bool, error) {
		answer, err := clients[next.Add(1)%uint64(len(clients))].ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
			Domain:      domain,
			Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: entry, Value: key}}}},
		})
		return answer.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
	}
	return c, nil
}
