package rls

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/internal/rules"
)

// decode translates a message into a request.
func decode(m *rlsv3.RateLimitRequest) *Request {
	req := &Request{
		Domain:      m.GetDomain(),
		Descriptors: make([]Descriptor, len(m.GetDescriptors())),
		HitsAddend:  m.GetHitsAddend(),
	}
	count := 0
	for _, from := range m.GetDescriptors() {
		count += len(from.GetEntries())
	}
	entries := make([]rules.Entry, 0, count)
	for i, from := range m.GetDescriptors() {
		to, first := &req.Descriptors[i], len(entries)
		for _, e := range from.GetEntries() {
			entries = append(entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		to.Entries = entries[first:len(entries):len(entries)]
		to.Refund = from.GetIsNegativeHits()
		if addend := from.GetHitsAddend(); addend != nil {
			to.HitsAddend = &addend.Value
		}
		to.Limit = decodeLimit(from.GetLimit())
	}
	return req
}

func decodeLimit(m *ratelimitv3.RateLimitDescriptor_RateLimitOverride) *Override {
	if m == nil {
		return nil
	}
	o := &Override{Requests: m.GetRequestsPerUnit(), Unit: Unit(m.GetUnit()), Multiplier: 1}
	if multiplier := m.GetUnitMultiplier(); multiplier != nil {
		o.Multiplier = multiplier.GetValue()
	}
	return o
}

// encode translates an answer into a message. The error says that metadata does not fit
// into a message.
func encode(a *Answer) (*rlsv3.RateLimitResponse, error) {
	m := &rlsv3.RateLimitResponse{
		OverallCode: code(a.Over),
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(a.Statuses)),
	}
	statuses := make([]statusMemory, len(a.Statuses))
	for i := range a.Statuses {
		m.Statuses[i] = statuses[i].encode(&a.Statuses[i])
	}
	for _, h := range a.Headers {
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &corev3.HeaderValue{Key: h.Name, Value: h.Value})
	}
	if a.Metadata == nil {
		return m, nil
	}
	var err error
	m.DynamicMetadata, err = structpb.NewStruct(a.Metadata)
	return m, err
}

// statusMemory holds the messages of one status, allocated at once.
type statusMemory struct {
	whole rlsv3.RateLimitResponse_DescriptorStatus
	limit rlsv3.RateLimitResponse_RateLimit
	reset durationpb.Duration
}

func (m *statusMemory) encode(s *Status) *rlsv3.RateLimitResponse_DescriptorStatus {
	m.whole.Code, m.whole.LimitRemaining = code(s.Over), s.Remaining
	if s.Limit == nil {
		return &m.whole
	}
	m.limit.Name, m.limit.RequestsPerUnit = s.Limit.Name, s.Limit.Requests
	m.limit.Unit = rlsv3.RateLimitResponse_RateLimit_Unit(s.Limit.Unit)
	if s.Limit.Multiplier != 1 {
		m.limit.UnitMultiplier = wrapperspb.UInt32(s.Limit.Multiplier)
	}
	// Reset is in whole seconds.
	m.reset.Seconds = int64(s.Reset / time.Second)
	m.whole.CurrentLimit, m.whole.DurationUntilReset = &m.limit, &m.reset
	return &m.whole
}

func code(over bool) rlsv3.RateLimitResponse_Code {
	if over {
		return rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return rlsv3.RateLimitResponse_OK
}
