package memengine_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
)

// BenchmarkTenMillionKeys exhausts ten million keys in a store with room for about a
// million, and then asks for ten thousand of the first again: none may be granted more.
// It reports the most that the process ever had in memory, and the 99th percentile of a
// take; GOMEMLIMIT=230MiB is for the first.
func BenchmarkTenMillionKeys(b *testing.B) {
	const keys, sample, room = 10_000_000, 10_000, 64 << 20
	limit := weir.PerDay(1).MustCompile()
	for b.Loop() {
		store := memengine.New(memengine.Options{MaxBytes: room})
		var took [10_000]int // by 10 ns, the last for all that is longer
		for i := range keys {
			key := fmt.Sprintf("user:%011d", i)
			began := time.Now()
			take(b, store, key, limit, 1)
			took[min(int(time.Since(began)/10), len(took)-1)]++
		}
		for i := range sample {
			if d := take(b, store, fmt.Sprintf("user:%011d", i), limit, 1); d.Allowed() {
				b.Fatalf("key %d was renewed: %+v", i, d)
			}
		}
		stats := store.Stats()
		if stats.Bytes > room {
			b.Fatalf("%+v, want at most %d bytes", stats, room)
		}
		b.ReportMetric(float64(stats.Keys), "keys")
		b.ReportMetric(percentile99(took[:], keys), "p99-µs")
		b.ReportMetric(peak(b), "peak-MiB")
	}
}

func percentile99(took []int, all int) float64 {
	sum := 0
	for i, n := range took {
		if sum += n; sum >= all*99/100 {
			return float64(i+1) / 100
		}
	}
	return float64(len(took)) / 100
}

// peak is the most that this process has had in memory, in MiB; 0 where the system does
// not say.
func peak(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kib float64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
