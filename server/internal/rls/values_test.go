package rls_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
)

const valueRules = `
domain: d
descriptors:
  - {key: path, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: own, rate_limit: {unit: year, requests_per_unit: 3, algorithm: gcra, burst: 3}}
  - {key: page, value: "/login?*next=*", rate_limit: {unit: year, requests_per_unit: 3}}
`

// passed asks eight times with one descriptor, whose value may be no text, and returns how many
// requests passed.
func passed(t *testing.T, s *rls.Service, key, value string) (n int) {
	t.Helper()
	placeholder := strings.Repeat("~", len(value))
	raw, err := proto.Marshal(ask(t, key+"="+placeholder))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(placeholder), []byte(value), 1)
	for range 8 {
		answer, err := s.Answer(t.Context(), nil, raw, nil)
		if err != nil {
			t.Fatalf("%s=%.40q (%d bytes): %v", key, value, len(value), err)
		}
		m := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(answer, m); err != nil {
			t.Fatal(err)
		}
		if m.GetOverallCode() == rlsv3.RateLimitResponse_OK {
			n++
		}
	}
	return n
}

// TestClientsChooseValues: a client chooses the bytes of values. Each value has a budget of its
// own, whatever it is, and no value has that of another one.
func TestClientsChooseValues(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("a", 16<<10)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(long)))
	values := []string{
		"/", long[:16<<10], long, long[:16<<10] + "b", strings.Repeat("a", 250<<10),
		"\xff", "\xfe", "\uFFFD", "%FF", "\xc3\x28", "/ok\x80", "/ok", long + "\xff",
		digest, long[:256] + "#" + digest[7:],
	}
	for _, metadata := range []bool{false, true} {
		s := newService(t, valueRules, rls.Options{Mode: rls.Mode{Metadata: metadata}, Taker: memengine.New(memengine.Options{})})
		for _, key := range []string{"path", "own"} {
			for _, value := range values {
				if n := passed(t, s, key, value); n != 3 {
					t.Errorf("%s=%.40q (%d bytes): %d of 8 pass, want 3", key, value, len(value), n)
				}
			}
		}
	}
}

// TestPaddedValuesMatchTheirRules: padding in the middle does not lead to another rule.
func TestPaddedValuesMatchTheirRules(t *testing.T) {
	t.Parallel()
	s := newService(t, valueRules, rls.Options{Taker: memengine.New(memengine.Options{})})
	for _, padding := range []string{"", strings.Repeat("x=&", 10_000), "\xff\xff&"} {
		if n := passed(t, s, "page", "/login?"+padding+"next=/"); n != 3 {
			t.Errorf("%d bytes of padding: %d of 8 pass, want 3", len(padding), n)
		}
	}
}

// TestTooManySlots: a client may choose the number of hits. More slots than there can be are over
// the limit, and take none.
func TestTooManySlots(t *testing.T) {
	t.Parallel()
	b := newBench(t, wrongRules, rls.Mode{})
	b.want("OVER_LIMIT | OK 8/HOUR 7 59m56s | OVER_LIMIT 8/MINUTE seats 0 596523h14m7s", "h=1; seats=1 +1001")
	b.want("OVER_LIMIT | OVER_LIMIT 8/MINUTE seats 0 596523h14m7s", "seats=1 +18446744073709551615")
	b.want("OK | OK 8/MINUTE seats 0 1m0s", "seats=1 +8")
}
