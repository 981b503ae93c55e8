package rls_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	overrides "github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// memoRules are rules that come in force one after another: the same messages mean other limits,
// none, and acts of every form.
var memoRules = []string{
	wrongRules,
	modes,
	"domain: other\ndescriptors: [{key: h, rate_limit: {unit: hour, requests_per_unit: 8}}]",
	`
domain: d
calls: {rls_algorithm: gcra}
budgets: {all: {algorithm: gcra, unit: minute, requests_per_unit: 6}}
descriptors:
  - key: h
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1, name: h, algorithm: token_bucket}
  - key: ours
    rate_limits:
      - {name: a, algorithm: gcra, unit: second, requests_per_unit: 2}
      - {name: b, algorithm: sliding_counter, unit: minute, requests_per_unit: 3}
      - {budget: all}
  - {key: q, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: seats, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: concurrency}}
  - {key: n, descriptors: [{key: h, rate_limit: {unit: month, requests_per_unit: 3, algorithm: fixed_window}}]}
`,
}

// memoDescriptors have every form of a descriptor.
var memoDescriptors = []string{
	"h=1", "h=1 +2", "h=1 +0", "h=1 -1", "h=2", "h=1,weir=settle +3", "h=1 @2/MINUTE", "h=1 @3/HOUR*2 +0", "h=1 @3/0",
	"ours=1", "ours=1 +3", "ours=1 +0", "ours=1 -1", "ours=1,weir=settle", "seats=1", "seats=1 -1", "seats=1 +0", "free=1",
	"q=1", "p=1", "sq=1", "n=1", "n=1,h=1", "big=1", "small=1", "tiny=1", "alt=1", "alt=1 +0", "none=1", "h=1 -9007199254740992",
	"q=1; p=1", "n=1; p=1", "sq=1; q=1; p=1",
}

// charger is a call that has memory for its message, or none. Its text is the memory of the
// message, which serves other calls afterwards.
type charger struct {
	raw  []byte
	full bool
}

var errFull = status.Error(codes.ResourceExhausted, "full")

func (c *charger) Take(int64) error {
	if c.full {
		return errFull
	}
	return nil
}

func (c *charger) Text() string { return unsafe.String(unsafe.SliceData(c.raw), len(c.raw)) }

func tokenOf(name string) string { return name + "-and-a-long-token" }

// newCallers returns a file with a caller "edge", who has the verbs in every domain, and others
// with fewer rights.
func newCallers(t testing.TB, verbs string) (file *callers.File, rewrite func(verbs string)) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	rewrite = func(verbs string) {
		text := "callers:\n"
		for _, c := range [][3]string{{"edge", verbs, `"*"`}, {"viewer", "[peek]", "d"}, {"stranger", "[take]", "elsewhere"}} {
			text += fmt.Sprintf("  - {name: %s, tokens: [%x], verbs: %s, domains: [%s]}\n", c[0], sha256.Sum256([]byte(tokenOf(c[0]))), c[1], c[2])
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(verbs)
	file, err := callers.OpenFile(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file, rewrite
}

func identityOf(t testing.TB, file *callers.File, name string) *callers.Identity {
	t.Helper()
	a := callers.New(callers.Options{Listener: "grpc", File: file})
	who, known := a.Authenticate(&callers.Credentials{Token: tokenOf(name), Shown: true})
	if !known {
		t.Fatal(name, "is unknown")
	}
	return who
}

// TestMemo holds a service that remembers messages against services that never saw one, while
// rules, overrides and callers change. Every byte of every answer is the same.
func TestMemo(t *testing.T) {
	t.Parallel()
	file, _ := newCallers(t, "[take, peek, refund, settle]")
	who := []*callers.Identity{nil, nil, nil, nil, identityOf(t, file, "edge"), identityOf(t, file, "viewer"), identityOf(t, file, "stranger")}
	var sets []*rules.Set
	for i, text := range memoRules {
		sets = append(sets, rules.MustParse(fmt.Sprintf("%d.yaml", i), text))
	}
	recalled := 0
	rapid.Check(t, func(r *rapid.T) {
		clock, set := storetest.NewClock(), sets[0]
		clock.Set(midday)
		o := rls.Options{
			Rules: func() *rules.Set { return set }, Now: clock.Now,
			Mode: rls.Mode{
				Quota: rapid.Bool().Draw(r, "quota"), Shadow: rapid.Bool().Draw(r, "shadow"), Metadata: rapid.Bool().Draw(r, "metadata"),
				Headers: rapid.SampledFrom([]*rls.HeaderNames{nil, &rls.DefaultHeaders}).Draw(r, "headers"),
			},
			Unmatched: func(_ *rules.Request, why rules.Unmatched) bool { return why == rules.UnmatchedDomain },
		}
		if rapid.Bool().Draw(r, "few descriptors") {
			o.Bounds.Descriptors = 2
		}
		// One store each, which sees the same.
		var takers [2]*overrides.Layer
		for i := range takers {
			takers[i] = overrides.Wrap(memengine.New(memengine.Options{Now: clock.Now}), overrides.Options{Now: clock.Now})
		}
		o.Taker = takers[0]
		remembering := rls.New(o)
		o.Taker = takers[1]
		var messages [][]byte
		for range rapid.IntRange(1, 4).Draw(r, "messages") {
			messages = append(messages, drawMessage(t, r))
		}
		for range rapid.IntRange(20, 100).Draw(r, "steps") {
			switch rapid.IntRange(0, 30).Draw(r, "step") {
			case 0:
				set = rapid.SampledFrom(sets).Draw(r, "rules")
			case 1:
				limit := rapid.SampledFrom([]*weir.Limit{nil, {Count: 2, Period: time.Minute}, {Period: time.Second}}).Draw(r, "limit")
				key := rapid.SampledFrom([]string{"d/h=1;hour", "d/ours=1;ours", "d/q=1;minute"}).Draw(r, "key")
				for _, taker := range takers {
					if err := taker.Set(overrides.Override{Key: key, Limit: limit, Until: clock.Now().Add(time.Minute)}); err != nil {
						r.Fatal(err)
					}
				}
			case 2:
				clock.Advance(time.Duration(rapid.IntRange(1, 90_000).Draw(r, "ms")) * time.Millisecond)
			case 3:
				messages[rapid.IntRange(0, len(messages)-1).Draw(r, "index")] = drawMessage(t, r)
			default:
				ctx := callers.NewContext(t.Context(), rapid.SampledFrom(who).Draw(r, "caller"))
				if rapid.IntRange(0, 9).Draw(r, "left") == 9 {
					canceled, cancel := context.WithCancel(ctx)
					cancel()
					ctx = canceled
				}
				raw, full := rapid.SampledFrom(messages).Draw(r, "message"), rapid.IntRange(0, 9).Draw(r, "full") == 9
				for range rapid.SampledFrom([]int{1, 1, 1, rls.MemoCalls}).Draw(r, "times") {
					if remembering.Remembers(raw) {
						recalled++
					}
					got, want := decide(ctx, remembering, raw, full), decide(ctx, rls.New(o), raw, full)
					if got != want {
						r.Fatalf("%q:\n got %s\nwant %s", raw, got, want)
					}
				}
			}
		}
	})
	if recalled == 0 {
		t.Error("no message was recalled")
	}
}

// decide returns the answer, or the error with its details. The memory of the message is
// overwritten afterwards.
func decide(ctx context.Context, s *rls.Service, raw []byte, full bool) string {
	memory := bytes.Clone(raw)
	answer, err := s.Answer(ctx, &charger{memory, full}, memory, nil)
	m, text := new(rlsv3.RateLimitResponse), fmt.Sprintf("%q", answer)
	switch {
	case err != nil:
		text = fmt.Sprint(status.Convert(err).Proto())
	case proto.Unmarshal(answer, m) != nil:
		text = "malformed: " + text
	case m.GetDynamicMetadata() != nil: // protobuf encodes its fields in any order
		if answer, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err == nil {
			text = fmt.Sprintf("%q", answer)
		}
	}
	for i := range memory {
		memory[i] = 'x'
	}
	return text
}

// drawMessage draws a message, sometimes malformed.
func drawMessage(t testing.TB, r *rapid.T) []byte {
	descriptors := rapid.SliceOfN(rapid.SampledFrom(memoDescriptors), 1, 3).Draw(r, "descriptors")
	raw := encoded(t, ask(t, strings.Join(descriptors, "; "),
		hits(rapid.SampledFrom([]uint32{0, 1, 3}).Draw(r, "hits")),
		in(rapid.SampledFrom([]string{"d", "d", "d", "d", "other"}).Draw(r, "domain"))))
	switch rapid.IntRange(0, 19).Draw(r, "damage") {
	case 0:
		return raw[:len(raw)-1]
	case 1: // an unknown field, which changes the bytes and not the meaning
		return protowire.AppendVarint(protowire.AppendTag(raw, 15, protowire.VarintType), rapid.Uint64().Draw(r, "unknown"))
	case 2: // too long to be remembered
		return protowire.AppendBytes(protowire.AppendTag(raw, 15, protowire.BytesType), make([]byte, rls.MemoMessageBytes))
	}
	return raw
}

func encoded(t testing.TB, m *rlsv3.RateLimitRequest) []byte {
	t.Helper()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestMemoQuota alternates between remembered messages that differ in what refuses them.
func TestMemoQuota(t *testing.T) {
	t.Parallel()
	b := newBench(t, modes, rls.Mode{})
	for range 2 * rls.MemoCalls {
		b.call(ask(t, "q=1; n=1"))
		b.codes("OK OVER OK", "q=1; p=1 +0")
		b.codes("OVER OVER OK", "n=1; p=1 +0")
	}
}

// TestMemoRights takes a right away, and gives it back, while the message is remembered.
func TestMemoRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, rewrite := newCallers(t, "[take]")
		refreshing, stop := context.WithCancel(t.Context())
		var refreshed sync.WaitGroup
		refreshed.Go(func() { file.Refresh(refreshing) })
		edge := identityOf(t, file, "edge")
		s := newService(t, wrongRules, rls.Options{Taker: memengine.New(memengine.Options{})})
		raw := encoded(t, ask(t, "h=1"))
		ask := func(want codes.Code) {
			t.Helper()
			if _, err := s.Answer(callers.NewContext(t.Context(), edge), nil, raw, nil); status.Code(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		for range rls.MemoCalls {
			ask(codes.OK)
		}
		if !s.Remembers(raw) {
			t.Error("the message is not remembered")
		}
		rewrite("[peek]")
		time.Sleep(2 * time.Second)
		ask(codes.PermissionDenied)
		rewrite("[take]")
		time.Sleep(2 * time.Second)
		ask(codes.OK)
		stop()
		refreshed.Wait()
	})
}

// TestMemoReload replaces the rules while callers ask. Whoever asks after the reload gets an
// answer by the new rules.
func TestMemoReload(t *testing.T) {
	t.Parallel()
	var sets []*rules.Set
	for i := range 2 {
		sets = append(sets, rules.MustParse("d.yaml", fmt.Sprintf("domain: d\ndescriptors: [{key: h, rate_limit: {unit: hour, requests_per_unit: %d}}]", 1_000_000+i)))
	}
	var (
		reload  sync.RWMutex // calls hold it to read
		current int
		work    sync.WaitGroup
	)
	s := rls.New(rls.Options{Rules: func() *rules.Set { return sets[current] }, Taker: memengine.New(memengine.Options{})})
	raws := [][]byte{encoded(t, ask(t, "h=1")), encoded(t, ask(t, "h=2; h=3"))}
	for range 4 {
		work.Go(func() {
			for i := range 3000 {
				reload.RLock()
				want := fmt.Sprint(1_000_000+current, "/HOUR")
				raw, err := s.Answer(t.Context(), nil, raws[i%2], nil)
				reload.RUnlock()
				m := new(rlsv3.RateLimitResponse)
				if err = errors.Join(err, proto.Unmarshal(raw, m)); err != nil {
					t.Error(err)
					return
				}
				if got := show(m); strings.Count(got, want) != 1+i%2 {
					t.Errorf("got %s, want limits of %s", got, want)
					return
				}
			}
		})
	}
	for range 200 {
		reload.Lock()
		current = 1 - current
		reload.Unlock()
		runtime.Gosched()
	}
	work.Wait()
}

// TestMemoForgetsRules has no message keep rules in memory that are no longer in force.
func TestMemoForgetsRules(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors: [{key: h, rate_limit: {unit: hour, requests_per_unit: 8}}]"
	set := rules.MustParse("d.yaml", text)
	s := rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memengine.New(memengine.Options{})})
	raw := encoded(t, ask(t, "h=1"))
	for range rls.MemoCalls {
		mustAnswer(t, s, raw)
	}
	if !s.Remembers(raw) {
		t.Fatal("the message is not remembered")
	}
	set = rules.MustParse("d.yaml", text)
	mustAnswer(t, s, encoded(t, ask(t, "h=2")))
	if n := s.Remembered(); n != 0 {
		t.Errorf("%d messages are remembered under rules that are not in force", n)
	}
}

func mustAnswer(t testing.TB, s *rls.Service, raw []byte) {
	t.Helper()
	if _, err := s.Answer(t.Context(), nil, raw, nil); err != nil {
		t.Fatal(err)
	}
}

// numbered returns a function that makes messages of the descriptors with numbers in place of
// "########". They share memory.
func numbered(t testing.TB, descriptors string) func(int) []byte {
	raw, number := encoded(t, ask(t, descriptors)), []byte("########")
	return func(i int) []byte {
		next := fmt.Appendf(nil, "%08d", i)
		for rest := raw; ; {
			at := bytes.Index(rest, number)
			if at < 0 {
				break
			}
			rest = rest[at+copy(rest[at:], next):]
		}
		number = next
		return raw
	}
}

// TestMemoIsBounded asks a hundred thousand different messages, a part of them as often as needed.
func TestMemoIsBounded(t *testing.T) { // not parallel: it measures the heap
	limits := ""
	for i := range 6 { // so that plans are large
		limits += fmt.Sprintf("{name: l%d, algorithm: gcra, unit: hour, requests_per_unit: 8}, ", i)
	}
	yaml := "domain: d\ndescriptors: [{key: h, rate_limit: {unit: hour, requests_per_unit: 8}}, {key: m, rate_limits: [" + limits + "]}]"
	s := newService(t, yaml, rls.Options{Taker: taker(func(_ context.Context, a *weir.Act) { a.Decisions[0].Outcome = weir.Granted })})
	wide := strings.Repeat("x", 100)
	forms := []func(int) []byte{
		numbered(t, "h=########"),
		numbered(t, "m=########"+wide+"; h=########"+wide),
		numbered(t, "h=########"+wide+"; h=x########"+wide+"; h=y########"+wide),
	}
	before, messages := heapBytes(), 100_000
	remembered := messages / 10_000
	for i := range messages {
		form, times := 0, 1
		if i%remembered == 0 {
			form, times = i/remembered%len(forms), rls.MemoCalls
		}
		raw := forms[form](i)
		for range times {
			mustAnswer(t, s, raw)
		}
	}
	if n := s.Remembered(); n < rls.MemoCells/2 || n > rls.MemoCells {
		t.Errorf("%d messages are remembered, want nearly %d", n, rls.MemoCells)
	}
	if more, most := heapBytes()-before, int64(rls.MemoCells*rls.MemoBytes); more > most {
		t.Errorf("the heap has %d bytes more, want at most %d", more, most)
	} else {
		t.Logf("%d messages take %d bytes each", s.Remembered(), more/int64(s.Remembered()))
	}
	runtime.KeepAlive(s)
}

func heapBytes() int64 {
	var m runtime.MemStats
	for range 3 { // pools forget what nobody uses
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoKeepsWhatIsUsed invents messages beside one that is used.
func TestMemoKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	s := newService(t, wrongRules, rls.Options{Taker: memengine.New(memengine.Options{})})
	used, invented := encoded(t, ask(t, "h=used +0")), numbered(t, "h=######## +0")
	for range rls.MemoCalls {
		mustAnswer(t, s, used)
	}
	for i := range 30_000 {
		if !s.Remembers(used) {
			t.Fatalf("after %d invented messages the used one is forgotten", i)
		}
		raw, times := invented(i), 1
		if i > 20_000 { // each of these comes often, between two calls of the used one
			mustAnswer(t, s, used)
			times = 2*rls.MemoCalls - 1
		}
		for range times {
			mustAnswer(t, s, raw)
		}
	}
}

// TestMemoRefuses repeats messages that must take no memory.
func TestMemoRefuses(t *testing.T) {
	t.Parallel()
	file, _ := newCallers(t, "[peek]")
	edge := identityOf(t, file, "edge")
	s := newService(t, wrongRules, rls.Options{Taker: memengine.New(memengine.Options{})})
	granted := encoded(t, ask(t, "h=1"))
	for name, c := range map[string]struct {
		raw  []byte
		who  *callers.Identity
		full bool
	}{
		"malformed":         {raw: granted[:len(granted)-1]},
		"forbidden":         {raw: granted, who: edge},
		"without memory":    {raw: granted, full: true},
		"too many":          {raw: encoded(t, ask(t, "h=1"+strings.Repeat(",h=1", 16)))},
		"invalid":           {raw: encoded(t, ask(t, "h=1 @5/0"))},
		"an unknown domain": {raw: encoded(t, ask(t, "h=1", in("e")))},
		"no rule":           {raw: encoded(t, ask(t, "e=1"))},
		"too long":          {raw: encoded(t, ask(t, "h="+strings.Repeat("x", rls.MemoMessageBytes)))},
		"too large a plan":  {raw: encoded(t, ask(t, "h=1"+strings.Repeat("; h=1", 40)))},
	} {
		for range 2 * rls.MemoCalls {
			decide(callers.NewContext(t.Context(), c.who), s, c.raw, c.full)
		}
		if n := s.Remembered(); n != 0 {
			t.Errorf("%s: %d messages are remembered", name, n)
		}
	}
}
