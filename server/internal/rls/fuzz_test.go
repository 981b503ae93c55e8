package rls_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/rls"
)

// fuzzRules has a rule of each kind that requests are treated differently for.
const fuzzRules = `
domain: d
descriptors:
  - key: k
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: w
    rate_limit: {unit: minute, requests_per_unit: 5, algorithm: gcra}
  - key: p
    value: "a*"
    rate_limits:
      - {unit: second, requests_per_unit: 5, algorithm: sliding_log, name: one}
      - {unit: day, requests_per_unit: 50, algorithm: fixed_window, charge_refused: true, name: two}
    descriptors:
      - key: k
        shadow_mode: true
        rate_limit: {unit: hour, requests_per_unit: 1}
  - key: h
    rate_limit: {period: 60s, requests_per_unit: 2, algorithm: concurrency}
  - key: u
    rate_limit: {unlimited: true}
  - key: b
    budgets: {m: {unit: hour, requests_per_unit: 9, algorithm: gcra}}
    descriptors:
      - {key: k, rate_limit: {budget: m}}
      - {key: w, rate_limit: {budget: m, keep: 3}}
      - key: o
        rate_limits: [{name: own, unit: hour, requests_per_unit: 2, algorithm: gcra}]
        otherwise: [{rate_limits: [{budget: m, keep: 2}]}, {rate_limits: [{name: last, unit: hour, requests_per_unit: 5, algorithm: token_bucket}]}]
  - {key: t, shares: {unit: hour, requests_per_unit: 100, guarantee: {x: 30, y: 50}}}
`

// seeds are requests worth starting from.
func seeds(f *testing.F) []*rlsv3.RateLimitRequest {
	empty := func(m *rlsv3.RateLimitRequest) {
		m.Descriptors = append(m.Descriptors, &ratelimitv3.RateLimitDescriptor{})
	}
	return []*rlsv3.RateLimitRequest{
		{},
		ask(f, "k=1; u=; p=abc,k=\x00", hits(2)),
		ask(f, "k=2 @3/HOUR; w=3 +0; w=3 -2"),
		ask(f, "h=1", empty, hits(1<<32-1)),
		ask(f, "b=1,k=1; b=1,w=1; b=1,o=1; b=1,o=2", hits(2)),
		ask(f, "t=x; t=z; b=1,o=1 +0; b=1,o=1,weir=settle -3", hits(3)),
	}
}

// FuzzRequest: any bytes are no message, or one that is answered, a status for each
// descriptor, or one that is told what is wrong with it.
func FuzzRequest(f *testing.F) {
	for _, m := range seeds(f) {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	service := newService(f, fuzzRules, rls.Options{Mode: rls.Mode{Headers: &rls.DefaultHeaders, Metadata: true}, Taker: memengine.New(memengine.Options{})})
	f.Fuzz(func(t *testing.T, text []byte) {
		m := new(rlsv3.RateLimitRequest)
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			proto.Reset(m)
			answer, err := service.Answer(t.Context(), nil, text, nil)
			if proto.Unmarshal(text, m) != nil {
				if err == nil {
					t.Errorf("what is no message was answered: %v", answer)
				}
				return
			}
			wantAnswer(t, m, answer, err)
		})
	})
}

// wantAnswer wants one that fits the request.
func wantAnswer(t *testing.T, m *rlsv3.RateLimitRequest, answer []byte, err error) {
	t.Helper()
	if err != nil {
		if said := status.Convert(err); said.Code() != codes.InvalidArgument || said.Message() == "" {
			t.Errorf("%v: %v", m, err)
		}
		return
	}
	got := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(answer, got); err != nil {
		t.Errorf("%v: %v", m, err)
	}
	over := false
	for _, s := range got.GetStatuses() {
		over = over || s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
	}
	if len(got.GetStatuses()) != len(m.GetDescriptors()) || !over && got.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("%v: %v", m, got)
	}
}

// FuzzJSON: any body is answered with one of the statuses that there are, and what is
// answered can be read.
func FuzzJSON(f *testing.F) {
	for _, m := range seeds(f) {
		text, err := protojson.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"\ud800"}]}],"hits_addend":"1"}`))
	service := newService(f, fuzzRules, rls.Options{Mode: rls.Mode{Metadata: true}, Taker: memengine.New(memengine.Options{})})
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzztest.Within(t, fuzztest.MostBytes, len(body), func() {
			w := httptest.NewRecorder()
			service.JSON(nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(body)))
			switch w.Code {
			case http.StatusOK, http.StatusTooManyRequests:
				if err := protojson.Unmarshal(w.Body.Bytes(), new(rlsv3.RateLimitResponse)); err != nil {
					t.Errorf("%s: %v", w.Body, err)
				}
			case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	})
}
