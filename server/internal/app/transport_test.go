package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/server/internal/rerun"
)

// transportVariable says which transport [start] has servers use that do not say it.
const transportVariable = "WEIR_GRPC_TRANSPORT"

// TestOverGRPCGo runs all tests of this package again, over the other transport.
func TestOverGRPCGo(t *testing.T) { rerun.With(t, transportVariable, TransportGRPCGo) }

// Raw messages go through the client's codec as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

// A said is everything that a client was told of a call.
type said struct {
	Code            codes.Code
	Text            string
	Details         []string
	Answer          []byte
	Header, Trailer metadata.MD
}

// saidBy calls the rate limit service with a message that need not be one.
func saidBy(t *testing.T, conn *grpc.ClientConn, token string, message []byte) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
	}
	var s said
	err := conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, &message, &s.Answer,
		grpc.ForceCodecV2(rawCodec{}), grpc.Header(&s.Header), grpc.Trailer(&s.Trailer))
	st := status.Convert(err)
	s.Code, s.Text = st.Code(), st.Message()
	for _, d := range st.Details() {
		s.Details = append(s.Details, fmt.Sprint(d))
	}
	return s
}

const differentialRules = `
domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, requests_per_unit: 5, algorithm: fixed_window}
  - key: h
    rate_limit: {period: 60s, requests_per_unit: 2, algorithm: concurrency}
  - key: u
    rate_limit: {unlimited: true}
  - key: o
    rate_limits: [{name: own, unit: year, requests_per_unit: 5, algorithm: fixed_window}]
    otherwise: [{rate_limits: [{name: other, unit: year, requests_per_unit: 5, algorithm: fixed_window}]}]
`

// FuzzTransports has two servers, which differ in nothing else, answer the same call.
func FuzzTransports(f *testing.F) {
	const token = "0123456789abcdef"
	const good = "Bearer " + token
	for _, m := range []*rlsv3.RateLimitRequest{
		{},
		{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("k", "1")}},
		{Domain: "d", HitsAddend: 9, Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("k", "1"), descriptor("u", "2")}},
		{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("h", "1")}},
		{Domain: "d", HitsAddend: 3, Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("o", "1"), descriptor("o", "2")}},
		{Domain: "e", Descriptors: []*ratelimitv3.RateLimitDescriptor{{}}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, good)
	}
	f.Add([]byte{0xff}, good)
	f.Add([]byte{}, "Bearer x")
	f.Add([]byte{}, "")
	folder := f.TempDir()
	rules, tokens := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "tokens")
	for file, text := range map[string]string{rules: differentialRules, tokens: token} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	var conns []*grpc.ClientConn
	for _, transport := range []string{TransportGRPCGo, TransportFrames} {
		app, err := New(Options{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", GRPCTransport: transport, Config: rules, GRPCTokenFile: tokens})
		if err != nil {
			f.Fatal(err)
		}
		if err := app.Start(f.Context()); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = app.Stop(context.WithoutCancel(f.Context())) })
		conn, err := grpc.NewClient(app.Addrs()[1].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	f.Fuzz(func(t *testing.T, message []byte, token string) {
		if !httpguts.ValidHeaderFieldValue(token) || strings.TrimSpace(token) != token {
			t.Skip("no client sends it")
		}
		want, got := saidBy(t, conns[0], token, message), saidBy(t, conns[1], token, message)
		for _, conn := range conns {
			saidBy(t, conn, good, nil) // several wrong tokens in a row would end the connection
		}
		for _, s := range []*said{&want, &got} {
			s.Answer = untimed(s.Answer)
			s.Header.Delete("date")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("grpc-go (-) and bare frames (+):\n%s", diff)
		}
	})
}

// untimed is an answer without the durations, which a second may pass between.
func untimed(raw []byte) []byte {
	m := new(rlsv3.RateLimitResponse)
	if proto.Unmarshal(raw, m) != nil {
		return raw
	}
	for _, s := range m.GetStatuses() {
		s.DurationUntilReset = nil
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return raw
	}
	return again
}

func descriptor(key, value string) *ratelimitv3.RateLimitDescriptor {
	return &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}
