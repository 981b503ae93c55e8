package rls_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
)

// TestHandlerAllocates bounds what a request of three descriptors costs besides the
// transport: the text of its message, the context, the keys, the answer and the messages that it is made of.
func TestHandlerAllocates(t *testing.T) {
	s := newService(t, theirs, rls.Options{Taker: memengine.New(memengine.Options{})})
	raw, err := proto.Marshal(ask(t, "most=10.0.0.1; outer=a,inner=/; outer=b,inner=/"))
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
