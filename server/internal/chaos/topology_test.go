package chaos

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

// onCluster is a store on a cluster of three masters.
func onCluster(cluster **testserver.Cluster, args ...string) func(*world) place {
	return func(w *world) place {
		c := testserver.StartCluster(w.t, 3, args...)
		*cluster = c
		for _, r := range c.Masters {
			w.node(r)
		}
		return place{addrs: c.Addrs(), cluster: true}
	}
}

// TestSlotsMove moves the slots of all keys from master to master and back while
// callers ask.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	var c *testserver.Cluster
	moved := 0
	f := fault{
		name: "slots of a cluster move", promise: "nothing lost, nothing charged twice",
		makeup: makeup{start: onCluster(&c)},
		strike: func(w *world) {
			for before := moved; moved == before && !t.Failed(); {
				moved += w.shuffle(c) // as soon as there are keys
			}
		},
	}
	f.run(t)
	if moved < 2 {
		t.Errorf("%d slots were moved", moved)
	}
}

// shuffle moves every slot that has keys to another master, and back.
func (w *world) shuffle(c *testserver.Cluster) int {
	w.t.Helper()
	moved := 0
	for i, from := range c.Masters {
		to := c.Masters[(i+1)%len(c.Masters)]
		for _, slot := range w.slots(from) {
			for _, way := range [][2]*testserver.Redis{{from, to}, {to, from}} {
				if err := c.Move(slot, way[0], way[1]); err != nil {
					w.t.Errorf("move slot %d: %v", slot, err)
					return moved
				}
				w.agreed(c)
				moved++
			}
		}
	}
	return moved
}

// agreed waits until all masters know of the latest move: one that does not could
// give the next move the same number, and then nobody knows whose the slot is.
func (w *world) agreed(c *testserver.Cluster) {
	w.t.Helper()
	epoch := func(r *testserver.Redis) string {
		info, err := r.Do("CLUSTER", "INFO")
		if err != nil {
			w.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "cluster_current_epoch:")
		number, _, _ := strings.Cut(rest, "\r")
		return number
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		first := epoch(c.Masters[0])
		if epoch(c.Masters[1]) == first && epoch(c.Masters[2]) == first {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the masters do not agree")
		}
	}
}

// slots are some of those in which a server has keys.
func (w *world) slots(r *testserver.Redis) []int {
	w.t.Helper()
	some := rounds()/3 + 1
	keys, err := r.Do("KEYS", "*")
	if err != nil {
		w.t.Fatal(err)
	}
	var slots []int
	for _, key := range strings.Fields(keys) {
		text, err := r.Do("CLUSTER", "KEYSLOT", key)
		slot, wrong := strconv.Atoi(text)
		if err != nil || wrong != nil {
			w.t.Fatal(err, wrong)
		}
		if slots = append(slots, slot); len(slots) == some {
			break
		}
	}
	return slots
}

// TestMasterOfAClusterDies kills one of three masters that keep on disk what they
// answer.
func TestMasterOfAClusterDies(t *testing.T) {
	t.Parallel()
	var c *testserver.Cluster
	f := fault{
		name: "kill -9 of one master of three, AOF always", promise: "nothing granted is lost",
		makeup: makeup{start: onCluster(&c, kept...)},
		strike: func(*world) {
			c.Masters[0].Kill()
			time.Sleep(struck)
			c.Masters[0].Restart()
			// A master that was restarted does not serve at once.
			for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(lead / 10) {
				if info, err := c.Masters[0].Do("CLUSTER", "INFO"); err == nil && strings.Contains(info, "cluster_state:ok") {
					return
				}
			}
		},
	}
	f.strikes(t, (rounds()+1)/2)
}

// TestSentinelsFailOver kills a master of which sentinels know, and has its replica
// take over.
func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	var s *testserver.Sentinel
	f := fault{
		name: "Sentinel: the master dies", promise: "at most one more limit, for what the replica had not heard of",
		makeup: makeup{start: func(w *world) place {
			s = testserver.StartSentinel(w.t, 1)
			w.node(s.Replicas[0])
			return place{addrs: s.Addrs(), master: testserver.SentinelMaster}
		}},
		strike: func(w *world) {
			w.history.lose()
			s.Master.Kill()
			for deadline := time.Now().Add(startTimeout); ; time.Sleep(lead / 10) {
				if role, err := s.Replicas[0].Do("ROLE"); err == nil && strings.HasPrefix(role, "master") {
					return
				}
				if time.Now().After(deadline) {
					w.t.Fatal("no replica took over")
				}
			}
		},
	}
	f.strikes(t, 1)
}
