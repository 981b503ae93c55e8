package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rules"
)

// doorFlags say who may call, how many, and how the client is found behind them.
type doorFlags struct {
	clientIP             string
	ipv6Bits             int
	httpMost, respMost   int
	httpTokens, grpcFile string
	insecureToken        bool
	callers              string
	hosts                []string
	limits               app.Limits
}

func (f *doorFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.clientIP, "client-ip", "remote_addr", "whom to believe about a client's address: "+clientip.Spellings())
	flags.IntVar(&f.ipv6Bits, "client-ip-v6-prefix", clientip.DefaultIPv6Bits, "bits of an IPv6 address that make one client, 48 … 128")
	flags.IntVar(&f.httpMost, "http-max-connections", app.DefaultHTTPMaxConnections, "how many HTTP connections can be open")
	flags.IntVar(&f.respMost, "resp-max-connections", resp.DefaultMaxConnections, "how many Redis clients can be connected")
	flags.StringSliceVar(&f.hosts, "allow-host", nil, "names, besides localhost, by which clients may call listeners on loopback addresses")
	l := &f.limits
	flags.IntVar(&l.GRPCMaxConnections, "grpc-max-connections", app.DefaultGRPCMaxConnections, "how many gRPC connections can be open")
	flags.IntVar(&l.GRPCMaxStreams, "grpc-max-streams", app.DefaultGRPCMaxStreams, "how many calls can be in flight on one gRPC connection")
	flags.IntVar(&l.GRPCMaxWatches, "grpc-max-watches", app.DefaultGRPCMaxWatches, "how many gRPC streams of health checks and reflection can stay open, of all connections")
	flags.DurationVar(&l.GRPCIdleTimeout, "grpc-idle-timeout", app.DefaultGRPCIdleTimeout, "how long a gRPC connection may be without a call")
	flags.IntVar(&l.AdminMaxConnections, "admin-max-connections", app.DefaultAdminMaxConnections, "how many connections of administrators can be open")
	flags.IntVar(&l.RequestMemory, "request-memory", app.DefaultRequestMemory, "how many MiB requests may hold while they are received and decoded, of all connections")
	flags.IntVar(&l.Descriptors, "max-descriptors", rules.MaxDescriptors, "how many descriptors a request may have")
	flags.IntVar(&l.ValueBytes, "max-value-bytes", rules.MaxValueBytes, "how many bytes a value of a descriptor may have")
	flags.StringVar(&f.httpTokens, "http-token-file", "", "file with the tokens, one a line, of which HTTP callers have to give one")
	flags.StringVar(&f.callers, "callers", "", "YAML file of callers, each with digests of tokens or names of certificates, and with what it may do in which domains")
	flags.BoolVar(&f.insecureToken, "insecure-token", false, "admit tokens and passwords without TLS from other machines, where a mesh or a tunnel encrypts them")
	flags.StringVar(&f.grpcFile, "grpc-token-file", "", "file with the tokens of which callers of Envoy's rate limit service have to give one")
}

// apply sets what the flags say.
func (f *doorFlags) apply(o *app.Options) error {
	strategy, err := clientip.Parse(f.clientIP)
	if err != nil {
		return named("client-ip", err)
	}
	if o.ClientIP, err = strategy.WithIPv6Bits(f.ipv6Bits); err != nil {
		return named("client-ip-v6-prefix", err)
	}
	o.HTTPMaxConnections, o.RESPMaxConnections = f.httpMost, f.respMost
	o.InsecureToken, o.Callers = f.insecureToken, f.callers
	o.Hosts = f.hosts
	o.Limits = f.limits
	o.HTTPTokenFile, o.GRPCTokenFile = f.httpTokens, f.grpcFile
	return nil
}

// named says which flag a mistake is in.
func named(flag string, err error) error {
	mistake := new(weir.InvalidError)
	if !errors.As(err, &mistake) {
		return err
	}
	return &weir.InvalidError{Field: flag + ", " + mistake.Field, Value: mistake.Value, Want: mistake.Want}
}
