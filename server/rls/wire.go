package rls

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/rules"
)

// decode reads a message.
func decode(m *rlsv3.RateLimitRequest) *Request {
	req := &Request{
		Domain:      m.GetDomain(),
		Descriptors: make([]Descriptor, len(m.GetDescriptors())),
		HitsAddend:  m.GetHitsAddend(),
	}
	for i, from := range m.GetDescriptors() {
		to := &req.Descriptors[i]
		to.Entries = make([]rules.Entry, len(from.GetEntries()))
		for j, e := range from.GetEntries() {
			to.Entries[j] = rules.Entry{Key: e.GetKey(), Value: e.GetValue()}
		}
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

// encode writes an answer. The error says that some metadata fits no message.
func encode(a *Answer) (*rlsv3.RateLimitResponse, error) {
	m := &rlsv3.RateLimitResponse{
		OverallCode: code(a.Over),
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(a.Statuses)),
	}
	for i := range a.Statuses {
		m.Statuses[i] = encodeStatus(&a.Statuses[i])
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

func encodeStatus(s *Status) *rlsv3.RateLimitResponse_DescriptorStatus {
	m := &rlsv3.RateLimitResponse_DescriptorStatus{Code: code(s.Over), LimitRemaining: s.Remaining}
	if s.Limit == nil {
		return m
	}
	m.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
		Name:            s.Limit.Name,
		RequestsPerUnit: s.Limit.Requests,
		Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(s.Limit.Unit),
	}
	if s.Limit.Multiplier != 1 {
		m.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(s.Limit.Multiplier)
	}
	m.DurationUntilReset = durationpb.New(s.Reset)
	return m
}

func code(over bool) rlsv3.RateLimitResponse_Code {
	if over {
		return rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return rlsv3.RateLimitResponse_OK
}
