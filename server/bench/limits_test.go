package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkListenersLimits asks weir serve, over Redis, for decisions on as many keys under one
// limit and under a limit each: of a rule each, or as the call states it.
func BenchmarkListenersLimits(b *testing.B) {
	const rules, stated = 10_000, 100_000
	var file strings.Builder
	file.WriteString(rulesFile)
	for i := range rules {
		fmt.Fprintf(&file, "  - key: own\n    value: u%d\n    rate_limit: {requests_per_unit: %d, unit: hour}\n", i, 1_000_000_000-i)
	}
	weir := startWeirBy(b, file.String(), "--store", "redis://"+testserver.StartRedis(b).Addr())
	grpc := func(work string, message func(i int) []byte) {
		b.Run(door("gRPC", "2 connections, 256 calls", work, "weir"), func(b *testing.B) {
			calls(b, weir.pid, weir.grpc, 2, 128, func(i int) []byte { return message(i * 7919 % rules) })
		})
	}
	grpc("10 000 keys of one rule", func(i int) []byte { return descriptor("user", i, "") })
	grpc("10 000 rules", func(i int) []byte { return descriptor("own", i, "") })
	// 1 is requests_per_unit, 2 the unit, of which 3 is an hour.
	limit := func(n uint64) string { return string(append(binary.AppendUvarint([]byte{1 << 3}, n), 2<<3, 3)) }
	grpc("10 000 keys of one limit in the call", func(i int) []byte { return descriptor("same", i, limit(1_000_000_000)) })
	grpc("10 000 limits in the call", func(i int) []byte { return descriptor("each", i, limit(uint64(1_000_000_000-i))) })
	for work, burst := range map[string]func(i int) int{
		"100 000 keys of one limit": func(int) int { return 1_000_000 },
		"100 000 limits":            func(i int) int { return 1_000_000 + i },
	} {
		b.Run(door("RESP", "4 connections, 64 together", work, "weir"), func(b *testing.B) {
			over(b, weir.pid, weir.resp, 4, func(conn net.Conn, left int) error {
				in := bufio.NewReader(conn)
				for ; left > 0; left -= 64 {
					var text strings.Builder
					for n := range min(left, 64) {
						i := (left - n) * 7919 % stated
						text.WriteString(bulk("CL.THROTTLE", work+strconv.Itoa(i), strconv.Itoa(burst(i)), "1000000000", "3600"))
					}
					if _, err := io.WriteString(conn, text.String()); err != nil {
						return err
					}
					for range min(left, 64) {
						if err := readReply(in); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// descriptor returns a call about a value of a key, and with a limit of its own if there is one.
func descriptor(key string, i int, limit string) []byte {
	entry := field(field(nil, 1, key), 2, "u"+strconv.Itoa(i))
	d := field(nil, 1, string(entry))
	if limit != "" {
		d = field(d, 2, limit)
	}
	m := field(field(nil, 1, "demo"), 2, string(d))
	return append([]byte{0, 0, 0, 0, byte(len(m))}, m...)
}

// BenchmarkRedisCell compares Weir with redis-cell, if it is installed, in one Redis: as programs
// use both, and with a script call for each decision, as redis-cell has a command.
func BenchmarkRedisCell(b *testing.B) {
	module := installed(b, "cell", "release", "libredis_cell.so")
	if module == "" {
		b.Skip("redis-cell is not installed")
	}
	r := startServerWith(b, "--loadmodule", module)
	for _, s := range []scenario{
		{name: "one key", limits: []Limit{Ample}, keys: Hot(), callers: []int{1, 64}},
		{name: "100 000 uniform keys", limits: []Limit{Ample}, keys: Uniform(100_000), callers: []int{1, 64}},
	} {
		s.run(b, []Contestant{
			{Name: "weir", Kind: Redis, Open: openWeirRedisShape(&stack.Options{}, shape{ask: allowOne})},
			{Name: "weir, a script call each", Kind: Redis, Open: openWeirRedisShape(nil, shape{ask: allowOne})},
			{Name: "redis-cell", Kind: Redis, Open: openRedisCell},
		}, r)
	}
}

func openRedisCell(e Env) (Limiter, error) {
	c, l := client(e), e.one()
	return Limiter{Release: c.Close, Allow: func(ctx context.Context, key string) (bool, error) {
		reply, err := c.Do(ctx, "CL.THROTTLE", e.Prefix+key, l.Count-1, l.Count, int64(l.Period/time.Second)).Int64Slice()
		if err == nil && len(reply) != 5 {
			err = errors.New("redis-cell: a reply without five numbers")
		}
		return err == nil && reply[0] == 0, err
	}}, nil
}
