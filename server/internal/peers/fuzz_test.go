package peers

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fuzztest"
)

// FuzzOpen: a message without the secret's MAC is never believed.
func FuzzOpen(f *testing.F) {
	from := newSeal(secret)
	f.Add(from.seal(channel, []byte("payload"), sealed))
	f.Add([]byte("san instance"))
	f.Add(bytes.Repeat([]byte{sealVersion}, headBytes))
	f.Fuzz(func(t *testing.T, message []byte) {
		to := newSeal("another secret")
		fuzztest.Within(t, fuzztest.MostBytes, 4*len(message), func() {
			if payload, err := to.open(channel, message, sealed); err == nil {
				t.Errorf("%q is believed: %q", message, payload)
			}
		})
	})
}

// FuzzReceive: any messages are survived; there is at least one instance, and no more than
// the bound.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("aone\natwo\nsone\n\na\ns\nss\no\nf\x01k\nf\xff"))
	f.Add(bytes.Repeat([]byte("a"), 200))
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f.Cleanup(func() { _ = client.Close() })
	f.Fuzz(func(t *testing.T, messages []byte) {
		g := newGroup(t, client, Options{})
		fuzztest.Within(t, fuzztest.MostBytes, 4*len(messages), func() {
			for message := range bytes.SplitSeq(messages, []byte("\n")) {
				g.receive(message)
				if n := g.Count(); n < 1 || n > maxInstances {
					t.Fatalf("%d instances", n)
				}
			}
		})
	})
}

// FuzzDecodeKeys: a message either cannot be decoded or comes back as it was encoded.
func FuzzDecodeKeys(f *testing.F) {
	f.Add(encodeKeys(nil, []string{"a", "", "longer"}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{5, 'a'})
	f.Fuzz(func(t *testing.T, message []byte) {
		fuzztest.Within(t, fuzztest.MostBytes, len(message), func() {
			keys, ok := decodeKeys(message)
			if !ok {
				return
			}
			if again, ok := decodeKeys(encodeKeys(nil, keys)); !ok || !slices.Equal(keys, again) {
				t.Fatalf("%q is %q, and then %q", message, keys, again)
			}
		})
	})
}

// FuzzDecodeOverride: a value in Redis either cannot be decoded or comes back as it was
// encoded.
func FuzzDecodeOverride(f *testing.F) {
	f.Add("k", `{"limit":"100/min burst 20","until_ms":1}`)
	f.Add("k", `{"limit":"","until_ms":-9223372036854775808}`)
	f.Add("", `{"limit":"9/day time_zone Europe/Berlin fixed_window","until_ms":1e3}`)
	f.Fuzz(func(t *testing.T, key, text string) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			o, err := decodeOverride(key, text)
			if err != nil {
				return
			}
			again, err := decodeOverride(key, encodeOverride(o))
			if err != nil || again.Key != key || !again.Until.Equal(o.Until) || (again.Limit == nil) != (o.Limit == nil) {
				t.Fatalf("%s: %+v came back as %+v, %v", text, o, again, err)
			}
			if diff := cmp.Diff(o.Limit, again.Limit, cmpopts.IgnoreUnexported(weir.Limit{})); diff != "" {
				t.Fatalf("%s: came back changed: %s", text, diff)
			}
		})
	})
}
