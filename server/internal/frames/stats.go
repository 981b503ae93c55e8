package frames

import (
	"net"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/logs"
)

// A Reason says why a connection was closed or a call refused.
type Reason int

// The reasons. Those from ReasonIdle on end a connection without fault of its client.
const (
	ReasonHandshake Reason = iota // TLS or the first frames failed, or took too long
	ReasonProtocol                // the client broke HTTP/2's rules
	ReasonFlood                   // the client sent too many frames that are no calls
	ReasonWrite                   // the client left its answers unread
	ReasonStreams                 // a call beyond MaxStreams
	ReasonWatches                 // a stream beyond MaxOpen
	ReasonMessage                 // a message beyond MaxMessage
	ReasonHeader                  // a header list beyond MaxHeaderList
	ReasonMemory                  // a call that Hold has no room for, or a connection that made room
	ReasonSlow                    // a message that took longer than MessageTimeout
	ReasonIdle                    // a connection without calls for IdleTimeout
	ReasonAge                     // a connection older than MaxAge
	reasons
)

var reasonNames = [reasons]string{
	"handshake", "protocol", "flood", "write", "streams", "watches",
	"message", "header", "memory", "slow", "idle", "age",
}

// String returns the reason as a word for a metric's label.
func (r Reason) String() string {
	if r < 0 || r >= reasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Stats are counters of a server since it was made, gauges aside.
type Stats struct {
	Connections int              // open now
	Accepted    int64            // connections
	Calls       int64            // that handlers answered
	Open        int64            // streams whose handler runs now
	Limited     map[string]int64 // connections closed and calls refused, by Reason
}

type counts struct {
	accepted atomic.Int64
	limited  [reasons]atomic.Int64
	logged   [reasons]logs.Seldom
	calls    atomic.Int64 // of connections that have left
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	all := Stats{
		Accepted: s.counts.accepted.Load(), Calls: s.counts.calls.Load(),
		Open: s.opened.Load(), Limited: map[string]int64{},
	}
	for _, c := range s.connections() {
		all.Connections++
		all.Calls += c.calls()
	}
	for r := range s.counts.limited {
		if n := s.counts.limited[r].Load(); n > 0 {
			all.Limited[Reason(r).String()] = n
		}
	}
	return all
}

// count counts a limited call or connection, and logs one a second.
func (s *Server) count(r Reason, nc net.Conn, attributes ...any) {
	s.counts.limited[r].Add(1)
	if s.options.Limited != nil {
		s.options.Limited(r)
	}
	if r >= ReasonIdle {
		return
	}
	if _, due := s.counts.logged[r].Due(); !due {
		return
	}
	attributes = append([]any{"listener", "grpc", "reason", r.String()}, attributes...)
	if nc != nil {
		attributes = append(attributes, "peer", nc.RemoteAddr().String())
	}
	s.options.Logger.Warn("connections or calls are rejected before they are read", attributes...)
}
