package app

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// TestParseClientIP: each spelling believes what its constructor believes.
func TestParseClientIP(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"X-Real-Ip":       {"192.0.2.1"},
		"X-Forwarded-For": {"192.0.2.9, 192.0.2.2, 10.1.1.1"},
		"Forwarded":       {"for=192.0.2.9, for=192.0.2.3;proto=http, for=10.1.1.1"},
	}
	for text, want := range map[string]string{
		"remote_addr":                                   "10.0.0.1",
		"single_header:X-Real-IP":                       "192.0.2.1",
		"single_header:X-Real-IP,10.0.0.0/8":            "192.0.2.1",
		"single_header:X-Real-IP,10.0.0.1":              "192.0.2.1",
		"single_header:X-Real-IP,172.16.0.0/12":         "10.0.0.1",
		"trusted_ranges:10.0.0.0/8":                     "192.0.2.2",
		"trusted_ranges:10.0.0.1, 10.1.1.1, 192.0.2.2":  "192.0.2.9",
		"trusted_ranges:::ffff:10.0.0.0/104,::1":        "192.0.2.2",
		"trusted_hops:2":                                "192.0.2.2",
		"forwarded_ranges:10.0.0.0/8":                   "192.0.2.3",
		"forwarded_hops:1":                              "10.1.1.1",
		"trusted_hops:4":                                "10.0.0.1",
		"trusted_ranges:172.16.0.0/12,fd00::/8,fe80::1": "10.0.0.1",
	} {
		strategy, err := parseClientIP(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := strategy.Key(&http.Request{RemoteAddr: "10.0.0.1:999", Header: header})
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseClientIPRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "remote", "remote_addr:", "remote_addr:1", "single_header", "single_header:", "single_header:X-Forwarded-For",
		"single_header:X-Real-IP,", "trusted_ranges", "trusted_ranges:", "trusted_ranges:10.0.0.0/33", "trusted_ranges:a", "trusted_ranges:fe80::1%eth0",
		"trusted_hops", "trusted_hops:", "trusted_hops:0", "trusted_hops:-1", "trusted_hops:x", "forwarded", "forwarded_hops:1.5", "Remote_Addr",
	} {
		if _, err := parseClientIP(text); !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q: got %v, want an error that says what was expected", text, err)
		}
	}
}

// FuzzClientIP holds that a strategy is understood, and names only who the peer or a
// header names, or that the setting is told to be wrong, shortly.
func FuzzClientIP(f *testing.F) {
	for _, text := range []string{"remote_addr", "single_header:X-Real-IP,10.0.0.0/8", "trusted_ranges:10.0.0.0/8,::1", "trusted_hops:2", "forwarded_hops:99999999999999999999", "forwarded_ranges:1.2.3.4/33", ":"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzztest.Within(t, fuzztest.MostBytes, 4*len(text), func() {
			s, err := parseClientIP(text)
			if err != nil {
				if !errors.Is(err, weir.ErrInvalid) || len(err.Error()) > 500+4*len(text) {
					t.Fatalf("%q: %v", text, err)
				}
				return
			}
			addr, err := s.Addr(&http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {"1.1.1.1, 2.2.2.2"}}})
			if addr.IsValid() != (err == nil) {
				t.Fatalf("%q: %v, %v", text, addr, err)
			}
		})
	})
}
