package ledger

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestCluster wants a ledger on a Redis Cluster to work as on one server, also when its hash slot
// moves to a node that does not know the scripts.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	l, err := New(Options{Client: c, Domain: "llm", Webhook: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	record := func(from, to int) {
		for i := from; i < to; i++ {
			user := fmt.Sprint("user", i%2)
			l.Settled(settlement(fmt.Sprint(i), user, 9_000, charge(t, user, 9_000, 1), charge(t, "all", 9_000, 2)))
		}
		testserver.Eventually(t, "all are written", func() bool { return l.flush(t.Context()) == nil && l.Waiting() == 0 })
	}
	record(0, 90)
	slot, err := c.ClusterKeySlot(t.Context(), l.book.(*shared).outbox()).Result()
	if err != nil {
		t.Fatal(err)
	}
	from := servers.Owner(int(slot))
	to := servers.Masters[0]
	if to == from {
		to = servers.Masters[1]
	}
	if err := servers.Move(int(slot), from, to); err != nil {
		t.Fatal(err)
	}
	record(90, 200)
	used, err := l.Used(t.Context(), []Charge{charge(t, "user0", 0, 1), charge(t, "user1", 0, 1), charge(t, "all", 0, 1)})
	if diff := cmp.Diff([]int64{900_000, 900_000, 1_800_000}, used); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"user=all 80 of 2000000: 1602000", "user=user0 80 of 1000000: 801000", "user=user1 80 of 1000000: 801000"}, outbox(t, l.book)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rows, err := l.Month(t.Context(), now.Format(monthForm))
	if err != nil || len(rows) != 2 || rows[0].Requests+rows[1].Requests != 200 {
		t.Errorf("%v %v", rows, err)
	}
}

var scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// BenchmarkRecord records settlements that are charged to a person, a team and a company, each with
// alerts, and reports the time that Redis takes for each.
func BenchmarkRecord(b *testing.B) {
	c := client(b, testserver.StartRedis(b).Addr())
	l, err := New(Options{Client: c, Domain: "llm", Webhook: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		user := fmt.Sprint("user", i%200)
		i++
		l.Settled(settlement(fmt.Sprint(i), user, 9_000, charge(b, user, 9_000, 200), charge(b, "team", 9_000, 3_000), charge(b, "company", 9_000, 20_000)))
		if l.Waiting() == 50 {
			if err := l.flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	l.flushed(b)
	text, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	stats := scriptTime.FindStringSubmatch(text)
	if stats == nil {
		b.Fatal("no script ran")
	}
	calls, _ := strconv.ParseFloat(stats[1], 64)
	micros, _ := strconv.ParseFloat(stats[2], 64)
	b.ReportMetric(micros/calls, "redis-µs/op")
}
