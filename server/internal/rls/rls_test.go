package rls_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// midday is a Thursday, 4 s after a full minute.
var midday = time.Date(2026, 1, 1, 12, 0, 4, 250_000_000, time.UTC)

// bench is a service with a clock that tests move.
type bench struct {
	t       testing.TB
	clock   *storetest.Clock
	service *rls.Service
}

func newBench(t testing.TB, yaml string, mode rls.Mode) *bench {
	t.Helper()
	b := &bench{t: t, clock: storetest.NewClock()}
	b.clock.Set(midday)
	b.service = newService(t, yaml, rls.Options{Mode: mode, Now: b.clock.Now, Taker: memengine.New(memengine.Options{Now: b.clock.Now})})
	return b
}

func newService(t testing.TB, yaml string, o rls.Options) *rls.Service {
	t.Helper()
	set := rules.MustParse("d.yaml", yaml)
	if o.Rules == nil {
		o.Rules = func() *rules.Set { return set }
	}
	return rls.New(o)
}

// call has the service decide a message as it arrives over gRPC. The error is a status.
func call(ctx context.Context, s *rls.Service, m *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	raw, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	raw, err = s.Answer(ctx, nil, raw, nil)
	if err != nil {
		return nil, err
	}
	answer := new(rlsv3.RateLimitResponse)
	return answer, proto.Unmarshal(raw, answer)
}

// change is what a test alters in a request.
type change func(*rlsv3.RateLimitRequest)

// ask makes a request of the domain d. Descriptors read "user=42,path=/x", with
// what they ask for themselves behind a space: "+3" charges, "-3" gives back,
// "@5/MINUTE" and "@5/MINUTE*10" are limits.
func ask(t testing.TB, descriptors string, changes ...change) *rlsv3.RateLimitRequest {
	t.Helper()
	m := &rlsv3.RateLimitRequest{Domain: "d"}
	for text := range strings.SplitSeq(descriptors, "; ") {
		m.Descriptors = append(m.Descriptors, descriptor(t, text))
	}
	for _, c := range changes {
		c(m)
	}
	return m
}

func hits(n uint32) change { return func(m *rlsv3.RateLimitRequest) { m.HitsAddend = n } }

func in(domain string) change { return func(m *rlsv3.RateLimitRequest) { m.Domain = domain } }

func descriptor(t testing.TB, text string) *ratelimitv3.RateLimitDescriptor {
	t.Helper()
	d := &ratelimitv3.RateLimitDescriptor{}
	words := strings.Split(text, " ")
	for entry := range strings.SplitSeq(words[0], ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	for _, word := range words[1:] {
		var n uint64
		scan(t, word[1:], "%d", &n)
		switch word[0] {
		case '@':
			d.Limit = override(t, word[1:])
		case '-':
			d.IsNegativeHits = true
			fallthrough
		default:
			d.HitsAddend = wrapperspb.UInt64(n)
		}
	}
	return d
}

func override(t testing.TB, text string) *ratelimitv3.RateLimitDescriptor_RateLimitOverride {
	t.Helper()
	o := &ratelimitv3.RateLimitDescriptor_RateLimitOverride{}
	count, unit, _ := strings.Cut(text, "/")
	scan(t, count, "%d", &o.RequestsPerUnit)
	unit, multiplier, multiplied := strings.Cut(unit, "*")
	if multiplied {
		o.UnitMultiplier = wrapperspb.UInt32(0)
		scan(t, multiplier, "%d", &o.UnitMultiplier.Value)
	}
	number, known := typev3.RateLimitUnit_value[unit]
	if !known {
		scan(t, unit, "%d", &number)
	}
	o.Unit = typev3.RateLimitUnit(number)
	return o
}

func scan(t testing.TB, text, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// show writes an answer in a line: the whole, then each descriptor with its
// limit, what remains and when it is reset.
func show(m *rlsv3.RateLimitResponse) string {
	parts := []string{m.GetOverallCode().String()}
	for _, s := range m.GetStatuses() {
		text := s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
			if l.GetUnitMultiplier() != nil {
				text += fmt.Sprintf("*%d", l.GetUnitMultiplier().GetValue())
			}
			if l.GetName() != "" {
				text += " " + l.GetName()
			}
		}
		text += fmt.Sprintf(" %d", s.GetLimitRemaining())
		if s.GetDurationUntilReset() != nil {
			text += " " + s.GetDurationUntilReset().AsDuration().String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " | ")
}

func (b *bench) call(m *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return call(b.t.Context(), b.service, m)
}

// want asks and compares.
func (b *bench) want(want, descriptors string, changes ...change) {
	b.t.Helper()
	m, err := b.call(ask(b.t, descriptors, changes...))
	if err != nil {
		b.t.Errorf("%s: %v, want %s", descriptors, err, want)
		return
	}
	if got := show(m); got != want {
		b.t.Errorf("%s:\n got %s\nwant %s", descriptors, got, want)
	}
}

// wants asks line by line: "descriptors => answer"; "wait 5s" moves the clock.
func (b *bench) wants(lines string) {
	b.t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		line = strings.TrimSpace(line)
		if wait, ok := strings.CutPrefix(line, "wait "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				b.t.Fatal(err)
			}
			b.clock.Advance(d)
			continue
		}
		descriptors, want, _ := strings.Cut(line, " => ")
		b.want(want, strings.TrimSpace(descriptors))
	}
}
