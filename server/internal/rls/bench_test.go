package rls_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// BenchmarkAnswer has an ordinary request, one of as many descriptors and one of as long a
// value as there may be.
func BenchmarkAnswer(b *testing.B) {
	for name, descriptors := range map[string]string{
		"ordinary": "most=10.0.0.1; outer=10.0.0.1,inner=/",
		"largest":  "most=1" + strings.Repeat("; most=1", rules.MaxDescriptors-1),
		"longest":  "most=" + strings.Repeat("x", 200<<10),
	} {
		b.Run(name, func(b *testing.B) {
			s := newService(b, theirs, rls.Options{Taker: memengine.New(memengine.Options{})})
			raw, err := proto.Marshal(ask(b, descriptors))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Answer(b.Context(), nil, raw, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
