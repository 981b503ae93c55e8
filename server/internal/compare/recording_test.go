package compare_test

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// The recording has the answers of envoyproxy/ratelimit at commit f2fb157, with the rules
// beside it and an empty Redis. To record again:
//
//	RUNTIME_SUBDIRECTORY=. RUNTIME_APPDIRECTORY=rules RUNTIME_ROOT=$PWD/testdata RUNTIME_WATCH_ROOT=false … ratelimit
//	go test -run TestRecording -record 127.0.0.1:8081
var record = flag.String("record", "", "record the answers of the envoyproxy/ratelimit at this address")

const recording = "testdata/envoyproxy.jsonl"

// recorded are the calls, in order, and how Weir's answer differs: its result, its reason and
// the two results of the descriptor.
var recorded = []struct {
	call *rlsv3.RateLimitRequest
	want string
}{
	{asking("generic_key=checkout", "remote_address=10.0.0.1"), ""},
	{asking("generic_key=checkout"), ""},
	{asking("generic_key=checkout"), ""},
	{asking("generic_key=checkout", "remote_address=10.0.0.1"), ""},
	// Refused hits are charged to the other descriptors.
	{asking("remote_address=10.0.0.1"), ""},
	{asking("remote_address=10.0.0.1"), ""},
	{asking("remote_address=10.0.0.2,path=/login"), ""},
	{asking("remote_address=10.0.0.2,path=/login"), ""},
	{asking("remote_address=10.0.0.2,path=/"), ""},
	{asking("nothing=known"), ""},
	{asking("shadow=1"), ""},
	{asking("shadow=1"), ""},
	{hitting(asking("tokens=a"), 60), ""},
	{hitting(asking("tokens=a"), 50), ""},
	{limited(asking("remote_address=10.0.0.3"), 1, typev3.RateLimitUnit_YEAR), ""},
	{limited(asking("remote_address=10.0.0.3"), 1, typev3.RateLimitUnit_YEAR), ""},
	// Two users, one counter: their keys are equal when joined by underscores.
	{asking("a=b_c"), ""},
	{asking("a_b=c"), "looser reason=the counts differ domain=edge descriptor=a_b other=OVER_LIMIT, 1/year, 0 remain weir=OK, 1/year, 0 remain"},
	// A refund is charged.
	{asking("refunded=1"), ""},
	{refunding(asking("refunded=1")), ""},
	{asking("refunded=1"), "looser reason=the counts differ domain=edge descriptor=refunded other=OVER_LIMIT, 2/year, 0 remain weir=OK, 2/year, 1 remain"},
}

// asking is a request with a descriptor for each text, such as "key=value,key=value".
func asking(descriptors ...string) *rlsv3.RateLimitRequest {
	m := &rlsv3.RateLimitRequest{Domain: "edge"}
	for _, text := range descriptors {
		d := new(ratelimitv3.RateLimitDescriptor)
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

func hitting(m *rlsv3.RateLimitRequest, hits uint64) *rlsv3.RateLimitRequest {
	m.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
	return m
}

func refunding(m *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	m.Descriptors[0].IsNegativeHits = true
	return hitting(m, 1)
}

func limited(m *rlsv3.RateLimitRequest, requests uint32, unit typev3.RateLimitUnit) *rlsv3.RateLimitRequest {
	m.Descriptors[0].Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return m
}

// TestRecording compares Weir with the recorded answers of envoyproxy/ratelimit: Envoy gets
// all of them unchanged, and exactly the documented differences are reported.
func TestRecording(t *testing.T) {
	t.Parallel()
	if *record != "" {
		recordAnswers(t)
	}
	answers, next := recordedAnswers(t), 0
	s := newStage(t, slog.LevelDebug, func(context.Context) (*rlsv3.RateLimitResponse, error) {
		next++
		return answers[next-1], nil
	})
	s.clock.Advance(2 * 366 * 24 * time.Hour) // longer than the windows
	s.rls = newService(t, s.clock.Now)
	logged := 0
	for i, r := range recorded {
		raw, request := s.prepare(t, r.call)
		want, err := proto.Marshal(answers[i])
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Answer(t.Context(), raw, request)
		<-s.results
		if err != nil || !bytes.Equal(answer, want) {
			t.Errorf("call %d: %x, %v: want the recorded answer %x", i, answer, err, want)
		}
		line := s.log.String()[logged:]
		logged += len(line)
		if got := difference(line); got != r.want {
			t.Errorf("call %d, %v:\n got %q\nwant %q", i, r.call, got, r.want)
		}
	}
}

// difference returns what a log line says of a difference.
func difference(line string) string {
	_, line, _ = strings.Cut(strings.TrimSpace(line), "result=")
	line, _, _ = strings.Cut(line, " number=")
	return strings.ReplaceAll(line, `"`, "")
}

func newService(t *testing.T, now func() time.Time) *rls.Service {
	t.Helper()
	text, err := os.ReadFile("testdata/rules/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set := rules.MustParse("edge.yaml", string(text))
	return rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memengine.New(memengine.Options{Now: now}), Now: now})
}

// recordedAnswers returns the answer to each call.
func recordedAnswers(t *testing.T) (all []*rlsv3.RateLimitResponse) {
	t.Helper()
	text, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		m := new(rlsv3.RateLimitResponse)
		if err := protojson.Unmarshal(line, m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) != len(recorded) {
		t.Fatalf("%s has %d answers to %d calls", recording, len(all), len(recorded))
	}
	return all
}

// recordAnswers writes the recording.
func recordAnswers(t *testing.T) {
	t.Helper()
	conn, err := grpc.NewClient(*record, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var lines bytes.Buffer
	for _, r := range recorded {
		m, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r.call)
		if err != nil {
			t.Fatal(err)
		}
		line, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	if err := os.WriteFile(recording, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
