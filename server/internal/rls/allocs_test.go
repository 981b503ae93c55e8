package rls_test

import (
	"context"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestHandlerAllocates bounds what a request of three descriptors costs besides the
// transport: the text of its message, the context, the keys, the answer and the messages that it is made of.
func TestHandlerAllocates(t *testing.T) {
	set := rules.MustParse("d.yaml", theirs)
	s := rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memstore.New(memstore.Options{})})
	m := &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "most", Value: "10.0.0.1"}}},
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "outer", Value: "a"}, {Key: "inner", Value: "/"}}},
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "outer", Value: "b"}, {Key: "inner", Value: "/"}}},
	}}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 0, 1024)
	got := testing.AllocsPerRun(1000, func() {
		answer, err := s.Answer(context.Background(), nil, raw, room)
		if err != nil || len(answer) < 30 {
			t.Fatal(answer, err)
		}
	})
	// They are 17; the race detector has pools forget at random.
	const most = 26
	if got > most {
		t.Errorf("%v allocations, want at most %d", got, most)
	}
}
