package rls_test

import (
	"testing"

	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/server/rls"
	"github.com/weirlimit/weir/server/rules"
)

func BenchmarkDecide(b *testing.B) {
	set, err := rules.Parse("d.yaml", []byte(theirs))
	if err != nil {
		b.Fatal(err)
	}
	s, err := rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memstore.New(memstore.Options{})})
	if err != nil {
		b.Fatal(err)
	}
	req := &rls.Request{Domain: "d", Descriptors: []rls.Descriptor{
		{Entries: []rules.Entry{{Key: "most", Value: "10.0.0.1"}}},
		{Entries: []rules.Entry{{Key: "outer", Value: "10.0.0.1"}, {Key: "inner", Value: "/"}}},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
