package cli

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var grpcLine = regexp.MustCompile(`(?m)^grpc (\S+)$`)

// rls asks the server as Envoy does: a domain, then descriptors, each as
// key=value,key=value. What is answered becomes stdout: the code for all, and a
// line for each descriptor with its code, its limit and what remains.
func (s *session) rls(ts *testscript.TestScript, args []string) {
	request := &rlsv3.RateLimitRequest{Domain: args[0]}
	for _, text := range args[1:] {
		descriptor := new(ratelimitv3.RateLimitDescriptor)
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			descriptor.Entries = append(descriptor.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	conn, err := grpc.NewClient(s.await(ts, &s.stdout, grpcLine)[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), m.GetOverallCode())
	for _, status := range m.GetStatuses() {
		limit := "none"
		if l := status.GetCurrentLimit(); l != nil {
			limit = strconv.FormatUint(uint64(l.GetRequestsPerUnit()), 10) + "/" + l.GetUnit().String() + " " + strconv.Quote(l.GetName())
		}
		fmt.Fprintln(ts.Stdout(), status.GetCode(), limit, status.GetLimitRemaining())
	}
	for _, h := range m.GetResponseHeadersToAdd() {
		fmt.Fprintf(ts.Stdout(), "%s: %s\n", h.GetKey(), h.GetValue())
	}
}

// grpc makes $GRPC the address of the gRPC listener, and $PID the process.
func (s *session) grpc(ts *testscript.TestScript, _ []string) {
	ts.Setenv("GRPC", s.await(ts, &s.stdout, grpcLine)[1])
	ts.Setenv("PID", strconv.Itoa(s.cmd.Process.Pid))
}
