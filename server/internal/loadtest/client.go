package loadtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// A Client asks a server for decisions of one unit each. It is safe for concurrent use.
type Client interface {
	io.Closer
	Allow(ctx context.Context, key string) (granted bool, err error)
}

// ClientOptions say how to reach a server.
type ClientOptions struct {
	// Connections is the maximum number of connections; at least 1.
	Connections int
	// Timeout limits each request. Zero means no limit.
	Timeout time.Duration
	// Token is sent as a bearer token unless it is empty.
	Token string
	// TLS configures TLS. Nil means the system's roots for https, and no TLS for gRPC.
	TLS *tls.Config
	// Domain and Entry name, for [DialRLS], the domain and the key of the only entry of
	// the only descriptor.
	Domain, Entry string
}

func (o *ClientOptions) authorization() string {
	if o.Token == "" {
		return ""
	}
	return "Bearer " + o.Token
}

type httpClient struct {
	client                *http.Client
	prefix, authorization string
}

// DialHTTP returns a client that sends GET requests to prefix with the key, escaped,
// appended: "http://127.0.0.1:8080/v1/auth?domain=d&user=". It does not connect yet. Like
// most proxies, it speaks HTTP/1.1, also over TLS. A status of 2xx means granted, 403 and
// 429 mean refused.
func DialHTTP(prefix string, o ClientOptions) Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = o.Connections, o.Connections, o.Connections
	transport.TLSClientConfig = o.TLS
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return &httpClient{client: &http.Client{Transport: transport, Timeout: o.Timeout}, prefix: prefix, authorization: o.authorization()}
}

func (h *httpClient) Allow(ctx context.Context, key string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.prefix+url.QueryEscape(key), nil)
	if err != nil {
		return false, err
	}
	if h.authorization != "" {
		request.Header.Set("Authorization", h.authorization)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return false, err
	}
	switch {
	case response.StatusCode/100 == 2:
		return true, nil
	case response.StatusCode == http.StatusForbidden, response.StatusCode == http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("%s answers %s", h.prefix, response.Status)
}

// Close closes the idle connections.
func (h *httpClient) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

type rlsClient struct {
	options ClientOptions
	conns   []*grpc.ClientConn
	clients []rlsv3.RateLimitServiceClient
	next    atomic.Uint64
}

// DialRLS returns a client of Envoy's rate limit service at address. It sends one
// descriptor of one entry, whose value is the key, and does not connect yet.
func DialRLS(address string, o ClientOptions) (Client, error) {
	r := &rlsClient{options: o}
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

func (r *rlsClient) Allow(ctx context.Context, key string) (bool, error) {
	if r.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.options.Timeout)
		defer cancel()
	}
	if authorization := r.options.authorization(); authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	client := r.clients[r.next.Add(1)%uint64(len(r.clients))]
	answer, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: r.options.Domain,
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: r.options.Entry, Value: key}},
		}},
	})
	return answer.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
}

func (r *rlsClient) Close() error {
	var err error
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}
