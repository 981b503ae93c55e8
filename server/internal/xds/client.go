// Package xds takes the rules from a management server, as Envoy Gateway and Envoy AI
// Gateway have one: state of the world over an aggregated stream. The rules are checked
// by the same code as rules files.
package xds

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Defaults of [Options].
const (
	DefaultNode            = "default"
	DefaultBackoff         = time.Second
	DefaultMaxBackoff      = time.Minute
	DefaultMaxMessageBytes = 16 << 20
)

const (
	// nackDelay is the time before a snapshot that was rejected is rejected again. It
	// doubles up to maxNackDelay. Management servers answer a rejection with the same
	// snapshot at once.
	nackDelay    = time.Second
	maxNackDelay = time.Minute
	// overlayPoll is how often the overlay's file is read.
	overlayPoll = 10 * time.Second
	// maxDetail is the greatest length of the mistakes that are sent to a management
	// server.
	maxDetail = 8 << 10
)

// Options are the settings of a client. Server and Apply are required.
type Options struct {
	// Server is the address of the management server, host:port.
	Server string
	// Node is the ID under which the management server keeps the snapshot. Empty:
	// [DefaultNode].
	Node string
	// Metadata is sent with the node's ID.
	Metadata map[string]string
	// Headers are sent with each stream.
	Headers map[string]string
	// TLS secures the connection. Nil: the connection is plaintext.
	TLS *TLS
	// Backoff is the wait before the second attempt to connect; it doubles up to
	// MaxBackoff, and each wait is between half and one and a half of that. Zero:
	// [DefaultBackoff] and [DefaultMaxBackoff].
	Backoff, MaxBackoff time.Duration
	// MaxMessageBytes is the size of the largest snapshot. Zero:
	// [DefaultMaxMessageBytes].
	MaxMessageBytes int
	// Merge lets several resources name one domain.
	Merge bool
	// Overlay is a file that changes the rules, see [config.Overlay]. It is read again
	// when it changes. Empty: there is none.
	Overlay string
	// Apply puts rules in force. It is called from [Client.Run] alone.
	Apply func(*rules.Set)
	// Logger receives lines about new rules, rejected rules and lost connections. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// Status is the state of a subscription.
type Status struct {
	// Server and Node are those of the [Options].
	Server, Node string
	// Connected is true while a stream is open; Err is the reason why none is.
	Connected bool
	Err       error
	// Loaded is true once a snapshot was accepted. Version, Revision and At are those of
	// the last one: the server's name for it, a digest of the resources, and its time of
	// arrival.
	Loaded   bool
	Version  string
	Revision string
	At       time.Time
	// Rejected is the last snapshot that was rejected; nil if none was.
	Rejected *Rejection
	// Overlay lists the lines of the overlay that change no rule, or is nil.
	Overlay error
	// Accepted and Nacks count accepted snapshots and rejections that were sent.
	Accepted, Nacks int64
}

// Stale reports whether the last snapshot was rejected, so that the rules in force are not
// the server's latest.
func (s *Status) Stale() bool { return s.Rejected != nil && s.Rejected.Current }

// A Rejection is a snapshot that was not put in force.
type Rejection struct {
	Version string
	At      time.Time
	Err     error
	// Current is true until the server sends good rules.
	Current bool
}

// A Client subscribes to rules. It is safe for concurrent use and starts nothing: Run
// does the work.
type Client struct {
	o     Options
	certs *certificates
	wake  chan struct{}

	// Run's own.
	accepted  []*anypb.Any
	digest    [sha256.Size]byte
	rejected  [sha256.Size]byte
	rejection error // of the rejected snapshot; nil if the last one was good
	overlay   *config.Overlay

	mu     sync.Mutex
	status Status
}

// New returns a client. It connects to nothing. The error names the option that cannot
// be, or lists the mistakes in the overlay.
func New(o Options) (*Client, error) {
	if _, _, err := net.SplitHostPort(o.Server); err != nil {
		return nil, &weir.InvalidError{Field: "rules xds", Value: fmt.Sprintf("%q", o.Server), Want: "the host:port of a management server"}
	}
	o.Node = cmp.Or(o.Node, DefaultNode)
	o.Backoff = cmp.Or(o.Backoff, DefaultBackoff)
	o.MaxBackoff = max(cmp.Or(o.MaxBackoff, DefaultMaxBackoff), o.Backoff)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Backoff < 0 {
		return nil, &weir.InvalidError{Field: "rules xds backoff", Value: o.Backoff.String(), Want: "no negative duration"}
	}
	if o.MaxMessageBytes < 0 {
		return nil, &weir.InvalidError{Field: "rules xds max bytes", Value: fmt.Sprint(o.MaxMessageBytes), Want: "at least 1; 0 for the default"}
	}
	c := &Client{o: o, wake: make(chan struct{}, 1), status: Status{Server: o.Server, Node: o.Node, Err: errors.New("no connection yet")}}
	if o.TLS != nil {
		c.certs = &certificates{TLS: *o.TLS}
		if _, err := c.certs.latest(); err != nil {
			return nil, err
		}
	}
	if o.Overlay != "" {
		if err := c.readOverlay(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Status returns the state of the subscription.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Client) update(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// Overlay reports whether an overlay changes the rules.
func (c *Client) Overlay() bool { return c.o.Overlay != "" }

// Reload makes Run read the overlay's file now.
func (c *Client) Reload() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run keeps a stream to the management server open until ctx ends. While there is none,
// the last good rules stay in force.
func (c *Client) Run(ctx context.Context) {
	backoff := c.o.Backoff
	for {
		answered, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		c.update(func(s *Status) { s.Connected, s.Err = false, err })
		if answered {
			backoff = c.o.Backoff
		}
		wait := backoff/2 + rand.N(backoff)
		backoff = min(2*backoff, c.o.MaxBackoff)
		c.o.Logger.Warn("no stream to the management server; the rules in force stay", "server", c.o.Server, "retry_in", wait, "error", err)
		if !c.pause(ctx, wait) {
			return
		}
	}
}

// pause waits, and applies changes of the overlay during the wait. It returns false if
// ctx ends.
func (c *Client) pause(ctx context.Context, wait time.Duration) bool {
	over := time.NewTimer(wait)
	defer over.Stop()
	poll := time.NewTicker(overlayPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return true
		case <-poll.C:
		case <-c.wake:
		}
		c.refreshOverlay()
	}
}

// A stream is one stream of snapshots.
type stream struct {
	*Client
	ads     discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	version string // last accepted on this stream
	// again is a rejection that waits to be sent; delay is the wait of the next one.
	again *discoveryv3.DiscoveryRequest
	delay time.Duration
}

// stream subscribes once and follows the snapshots until the stream ends. It reports
// whether the server has sent one.
func (c *Client) stream(ctx context.Context) (answered bool, err error) {
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(c.o.Headers)))
	defer cancel()
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	s := &stream{Client: c, ads: ads}
	if err := s.send(&discoveryv3.DiscoveryRequest{}); err != nil {
		return false, err
	}
	c.update(func(s *Status) { s.Connected, s.Err = true, nil })
	c.o.Logger.Info("subscribed to rules", "server", c.o.Server, "node", c.o.Node)

	responses := make(chan *discoveryv3.DiscoveryResponse)
	ended := make(chan error, 1)
	go receive(ctx, ads, responses, ended)
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	poll := time.NewTicker(overlayPoll)
	defer poll.Stop()
	for {
		var err error
		select {
		case response := <-responses:
			answered = true
			timer.Stop()
			s.again = nil
			if err = s.follow(response); s.again != nil {
				timer.Reset(s.delay)
				s.delay = min(2*s.delay, maxNackDelay)
			}
		case <-timer.C:
			if s.again != nil {
				err = s.nack(s.again)
				s.again = nil
			}
		case <-poll.C:
			c.refreshOverlay()
		case <-c.wake:
			c.refreshOverlay()
		case err := <-ended:
			return answered, err
		}
		if err != nil {
			// The error that ended the stream says more than the failure to send on it.
			select {
			case ended := <-ended:
				return answered, ended
			case <-ctx.Done():
			}
			return answered, err
		}
	}
}

// receive hands on the responses until the stream ends.
func receive(ctx context.Context, ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, to chan<- *discoveryv3.DiscoveryResponse, ended chan<- error) {
	for {
		response, err := ads.Recv()
		if err != nil {
			ended <- err
			return
		}
		select {
		case to <- response:
		case <-ctx.Done():
			ended <- ctx.Err()
			return
		}
	}
}

// send sends a request with the fields that all requests have.
func (s *stream) send(r *discoveryv3.DiscoveryRequest) error {
	r.TypeUrl, r.Node = TypeURL, &corev3.Node{Id: s.o.Node, UserAgentName: "weir"}
	if len(s.o.Metadata) > 0 {
		r.Node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for key, value := range s.o.Metadata {
			r.Node.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
	}
	return s.ads.Send(r)
}

// follow puts a snapshot in force and accepts it, or rejects it. A snapshot that was
// rejected already is rejected again only after a while.
func (s *stream) follow(response *discoveryv3.DiscoveryResponse) error {
	content := digest(response)
	err := s.rejection
	again := err != nil && content == s.rejected
	if !again {
		err = s.accept(response, content)
	}
	if err == nil {
		s.version, s.rejection = response.GetVersionInfo(), nil
		return s.send(&discoveryv3.DiscoveryRequest{VersionInfo: s.version, ResponseNonce: response.GetNonce()})
	}
	s.rejected, s.rejection = content, err
	if !again {
		s.o.Logger.Error("rules from the management server are wrong; the rules in force stay", "server", s.o.Server, "version", response.GetVersionInfo(), "error", err)
	}
	s.update(func(st *Status) {
		st.Rejected = &Rejection{Version: response.GetVersionInfo(), At: time.Now(), Err: err, Current: true}
	})
	nack := &discoveryv3.DiscoveryRequest{
		VersionInfo: s.version, ResponseNonce: response.GetNonce(),
		ErrorDetail: &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: shortened(err.Error())},
	}
	if !again || s.delay == 0 {
		s.delay = nackDelay
		return s.nack(nack)
	}
	s.again = nack
	return nil
}

func (s *stream) nack(request *discoveryv3.DiscoveryRequest) error {
	s.update(func(st *Status) { st.Nacks++ })
	return s.send(request)
}

func shortened(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return text[:maxDetail] + "…"
}

// accept puts the rules of a snapshot in force. The error says why they cannot be.
func (c *Client) accept(response *discoveryv3.DiscoveryResponse, content [sha256.Size]byte) error {
	if response.GetTypeUrl() != TypeURL {
		return fmt.Errorf("the type is %q; want %s", response.GetTypeUrl(), TypeURL)
	}
	if !c.Status().Loaded || content != c.digest {
		if err := c.apply(response.GetResources()); err != nil {
			return err
		}
		c.accepted, c.digest = response.GetResources(), content
	}
	c.update(func(s *Status) {
		s.Loaded, s.Version, s.At = true, response.GetVersionInfo(), time.Now()
		s.Revision = hex.EncodeToString(content[:8])
		s.Accepted++
		if s.Rejected != nil {
			past := *s.Rejected
			past.Current = false
			s.Rejected = &past
		}
	})
	return nil
}

// apply converts resources and puts their rules in force.
func (c *Client) apply(resources []*anypb.Any) error {
	domains, err := convert(resources, c.o.Merge, c.overlay)
	if err != nil {
		return err
	}
	set, err := rules.Compile(domains)
	if err != nil {
		return err
	}
	overlay := c.overlay.Check(domains)
	if overlay != nil && fmt.Sprint(overlay) != fmt.Sprint(c.Status().Overlay) {
		c.o.Logger.Warn("lines of the overlay change no rule", "file", c.o.Overlay, "error", overlay)
	}
	c.o.Apply(set)
	c.update(func(s *Status) { s.Overlay = overlay })
	c.o.Logger.Info("rules from the management server are in force", "server", c.o.Server, "domains", len(set.Domains()), "rules", len(set.Rules()))
	return nil
}

// readOverlay reads the overlay's file if it has changed.
func (c *Client) readOverlay() error {
	overlay, err := config.LoadOverlay(c.o.Overlay)
	if err == nil && (c.overlay == nil || overlay.Text != c.overlay.Text) {
		c.overlay = overlay
	}
	return err
}

// refreshOverlay puts a changed overlay in force. While its file is wrong, the last
// good one holds.
func (c *Client) refreshOverlay() {
	if c.o.Overlay == "" {
		return
	}
	before := c.overlay
	err := c.readOverlay()
	if err == nil && c.overlay == before {
		return
	}
	if err == nil && c.Status().Loaded {
		err = c.apply(c.accepted)
	}
	if err != nil && fmt.Sprint(err) != fmt.Sprint(c.Status().Overlay) {
		c.o.Logger.Error("the overlay is wrong; the last good one holds", "file", c.o.Overlay, "error", err)
		c.update(func(s *Status) { s.Overlay = err })
	}
}
