package xds_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/xds"
)

const node = "envoy-ratelimit"

// management is a management server as Envoy Gateway has one: a cache of snapshots whose
// versions count from 1 for each process.
type management struct {
	testing.TB
	address string
	tls     *tls.Config
	cache   cachev3.SnapshotCache
	grpc    *grpc.Server
	cancel  context.CancelFunc
	version int

	mu       sync.Mutex
	requests []*discoveryv3.DiscoveryRequest
}

// manage starts a management server at a free port; nil for no TLS.
func manage(t testing.TB, secured *tls.Config) *management {
	t.Helper()
	m := &management{TB: t, address: "127.0.0.1:0", tls: secured}
	m.start()
	t.Cleanup(m.stop)
	return m
}

// start starts it at the address that it had before, if any.
func (m *management) start() {
	m.Helper()
	listener := m.listen()
	var options []grpc.ServerOption
	if m.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(m.tls)))
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.version, m.cache, m.grpc = 0, cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil), grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(m.grpc, serverv3.NewServer(ctx, m.cache, serverv3.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests = append(m.requests, r)
			return nil
		},
	}))
	go func() { _ = m.grpc.Serve(listener) }()
}

// listen listens at the address of the server, which is settled by the first call.
func (m *management) listen() net.Listener {
	m.Helper()
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		m.Fatal(err)
	}
	m.address = listener.Addr().String()
	return listener
}

func (m *management) stop() {
	m.cancel()
	m.grpc.Stop()
}

// publish makes resources the next snapshot.
func (m *management) publish(resources ...types.Resource) {
	m.Helper()
	m.version++
	snapshot, err := cachev3.NewSnapshot(fmt.Sprint(m.version), map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: resources})
	if err == nil {
		err = m.cache.SetSnapshot(context.Background(), node, snapshot)
	}
	if err != nil {
		m.Error(err)
	}
}

// nacks are the rejections that were received.
func (m *management) nacks() []*discoveryv3.DiscoveryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*discoveryv3.DiscoveryRequest
	for _, r := range m.requests {
		if r.GetErrorDetail() != nil {
			all = append(all, r)
		}
	}
	return all
}

// last is the last request that was received.
func (m *management) last() *discoveryv3.DiscoveryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		return &discoveryv3.DiscoveryRequest{}
	}
	return m.requests[len(m.requests)-1]
}

// messages reads documents of YAML as resources.
func messages(t testing.TB, text string) []types.Resource {
	t.Helper()
	var all []types.Resource
	for document := range strings.SplitSeq(text, "\n---\n") {
		var tree map[string]any
		if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		c := new(ratelimitv3.RateLimitConfig)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// A subscriber is a client that runs, and the rules that it has put in force.
type subscriber struct {
	*testing.T
	*xds.Client

	mu   sync.Mutex
	set  *rules.Set
	sets int
}

func subscribe(t *testing.T, o xds.Options) *subscriber {
	t.Helper()
	s := &subscriber{T: t}
	o.Node, o.Apply = node, s.apply
	if o.Backoff == 0 {
		o.Backoff, o.MaxBackoff = 10*time.Millisecond, 50*time.Millisecond
	}
	var err error
	if s.Client, err = xds.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func (s *subscriber) apply(set *rules.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.sets = set, s.sets+1
}

func (s *subscriber) rules() *rules.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set
}

// paths are those of the rules in force; none before there are rules.
func (s *subscriber) paths() string {
	set := s.rules()
	if set == nil {
		return "none yet"
	}
	var all []string
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			all = append(all, fmt.Sprintf("%s %d/%s", r.Path, l.Count, r.Unit))
		}
	}
	return strings.Join(all, ", ")
}

// until waits for what comes about by itself.
func (s *subscriber) until(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never: %s; rules %s, status %+v", what, s.paths(), s.Status())
		}
	}
}

func (s *subscriber) untilPaths(want string) {
	s.Helper()
	s.until(want, func() bool { return s.paths() == want })
}
