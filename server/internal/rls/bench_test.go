package rls_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// BenchmarkDecideLargest asks for as many descriptors as there may be.
func BenchmarkDecideLargest(b *testing.B) {
	s := newService(b, theirs, rls.Options{Taker: memstore.New(memstore.Options{})})
	req := &rls.Request{Domain: "d"}
	for i := range rules.MaxDescriptors {
		req.Descriptors = append(req.Descriptors, rls.Descriptor{Entries: []rules.Entry{{Key: "most", Value: strconv.Itoa(i)}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecideLongest asks for a value as long as there may be.
func BenchmarkDecideLongest(b *testing.B) {
	s := newService(b, theirs, rls.Options{Taker: memstore.New(memstore.Options{})})
	req := &rls.Request{Domain: "d", Descriptors: []rls.Descriptor{{Entries: []rules.Entry{{Key: "most", Value: strings.Repeat("x", rules.MaxValueBytes)}}}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	set := rules.MustParse("d.yaml", theirs)
	s := rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memstore.New(memstore.Options{})})
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
