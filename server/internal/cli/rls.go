package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/rls"
)

// rlsFlags are the flags of Envoy's rate limit service.
type rlsFlags struct {
	shadow, quota, metadata bool
	headers, transport      string
	age, grace              time.Duration
}

func (f *rlsFlags) define(flags *pflag.FlagSet) {
	flags.BoolVar(&f.shadow, "rls-shadow", false, "Envoy: let every request pass; the statuses stay as they are")
	flags.BoolVar(&f.quota, "rls-quota", false, "Envoy: treat every rule as one with quota_mode")
	flags.BoolVar(&f.metadata, "rls-metadata", false, "Envoy: answer with dynamic metadata")
	flags.StringVar(&f.headers, "rls-headers", "", "Envoy: answer with response headers: on, or three names: limit,remaining,reset")
	flags.StringVar(&f.transport, "grpc-transport", app.TransportGRPCGo, "what speaks gRPC: grpc-go, or frames: bare HTTP/2 frames for the rate limit service, which cost a fraction")
	flags.DurationVar(&f.age, "grpc-connection-age", app.DefaultGRPCConnectionAge, "how long a gRPC connection lives")
	flags.DurationVar(&f.grace, "grpc-connection-grace", app.DefaultGRPCConnectionGrace, "how long calls of an aged gRPC connection may go on")
}

// mode is what the flags say of how the service answers.
func (f *rlsFlags) mode() (rls.Mode, error) {
	m := rls.Mode{Shadow: f.shadow, Quota: f.quota, Metadata: f.metadata}
	switch names := strings.Split(f.headers, ","); {
	case f.headers == "":
	case f.headers == "on":
		m.Headers = &rls.DefaultHeaders
	case len(names) == 3 && names[0] != "" && names[1] != "" && names[2] != "":
		m.Headers = &rls.HeaderNames{Limit: names[0], Remaining: names[1], Reset: names[2]}
	default:
		return m, &weir.InvalidError{Field: "rls-headers", Value: f.headers, Want: "on, or three names: limit,remaining,reset"}
	}
	return m, nil
}
