package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// FuzzVariables: whatever an environment of envoyproxy/ratelimit holds, it is followed
// or a variable is named, and neither says the passwords.
func FuzzVariables(f *testing.F) {
	const secret = "CANARY"
	f.Add("RUNTIME_ROOT=/data\nREDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp", "", "")
	f.Add("REDIS_URL=main,h:1,h:2\nREDIS_TYPE=SENTINEL\nREDIS_TLS=yes", "u:", "@h/")
	f.Add("REDIS_URL=redis://u:CANARY/@h:x\nREDIS_TYPE=cluster", "", "")
	f.Add("REDIS_URL=/run/redis.sock\nREDIS_TLS=true\nREDIS_TIMEOUT=1s\nLOG_LEVEL=x", "", "%zz")
	f.Add("GRPC_SERVER_USE_TLS=true\nSHADOW_MODE=2\nNEAR_LIMIT_RATIO=NaN\nREDIS_PERSECOND=true", "", "")
	f.Fuzz(func(t *testing.T, text, before, after string) {
		variables := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, "=")
			if name == "REDIS_URL" || !strings.Contains(value, secret) {
				variables[name] = value
			}
		}
		variables["REDIS_AUTH"], variables["REDIS_SENTINEL_AUTH"] = before+secret+after, secret+after
		flags := newServe().Flags()
		fuzztest.Within(t, fuzztest.MostBytes, len(text)+len(before)+len(after), func() {
			b, err := applyEnvoyproxy(flags, func(name string) string { return variables[name] })
			if err != nil {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", variables, err)
				}
				return
			}
			var log bytes.Buffer
			b.log(slog.New(slog.NewTextHandler(&log, nil)))
			if strings.Contains(log.String(), secret) {
				t.Errorf("%q is logged as %s", variables, log.String())
			}
		})
	})
}

// FuzzReadRequest: any text is a request with entries, or it is told what is wrong.
func FuzzReadRequest(f *testing.F) {
	for _, text := range []string{`shop user=a\,b,path=/; x=y`, `d  a=b`, `\`, `d a=b;`, "d =\x00", `d a=b,`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() {
			req, err := parseRequest(text)
			if err != nil {
				if err.Error() == "" {
					t.Fatalf("%q: %v", text, err)
				}
				return
			}
			if len(req.Descriptors) == 0 {
				t.Fatalf("%q: %+v", text, req)
			}
			for _, d := range req.Descriptors {
				if len(d) == 0 {
					t.Fatalf("%q: %+v", text, req)
				}
			}
		})
	})
}
