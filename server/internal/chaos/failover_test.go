package chaos

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

// What is promised of a failover by sentinels that wait for half a second.
const (
	suspects   = 500 * time.Millisecond
	afterDeath = 3 * time.Second
	afterNamed = time.Second
)

// TestFailoverOfALaggard kills a master whose replica has not heard from it for a
// while: what is forgotten is at most what was granted in that time.
func TestFailoverOfALaggard(t *testing.T) {
	t.Parallel()
	stalls := []time.Duration{200 * time.Millisecond}
	if *full {
		stalls = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}
	}
	for _, d := range stalls {
		t.Run(d.String(), func(t *testing.T) {
			var rows []timed
			for range 3 { // a machine that is late itself cannot judge
				f := failover{stalled: d}
				late := f.run(t)
				if rows = f.times(late); !*full || late <= lead || !slices.ContainsFunc(rows, func(r timed) bool { return !r.kept }) {
					break
				}
			}
			for _, r := range rows {
				r.report(t)
			}
		})
	}
}

// A failover is one master that dies.
type failover struct {
	*world
	stalled  time.Duration
	link     *wire
	heard    int64 // until when its replica surely knew all, ns since the history began
	died     int64 // when it did
	replaced int64 // when its replica was a master
	named    int64 // when a sentinel said so: they look once a second
}

func (f *failover) run(t *testing.T) (late time.Duration) {
	control := startControl()
	var s *testserver.Sentinel
	f.world = newWorld(t, makeup{ask: only("book"), callers: 8, tail: 2 * time.Second, start: func(w *world) place {
		s = testserver.StartSentinel(w.t, 1)
		f.link = layWire(w.t, s)
		w.node(s.Replicas[0])
		return place{addrs: s.Addrs(), master: testserver.SentinelMaster}
	}})
	f.load(1, func(w *world) { f.strike(s) })
	f.report(t)
	return control.end()
}

// strike stalls the link for a while, kills the master, and waits for the replica.
func (f *failover) strike(s *testserver.Sentinel) {
	time.Sleep(time.Second) // for something to lose
	f.until("callers are granted", func() bool { return f.world.paid.Load() > 100 })
	f.heard = f.history.now()
	written := f.offset(s.Master)
	f.until("the replica knows all that was granted", func() bool { return f.offset(s.Replicas[0]) >= written })
	f.link.stall()
	time.Sleep(f.stalled)
	s.Master.Kill()
	f.died = f.history.now()
	f.until("a replica takes over", func() bool {
		role, err := s.Replicas[0].Do("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	})
	f.replaced = f.history.now()
	_, port, _ := net.SplitHostPort(s.Replicas[0].Addr())
	f.until("a sentinel says so", func() bool {
		master, err := s.Sentinels[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", testserver.SentinelMaster)
		return err == nil && strings.Contains(master, port)
	})
	f.named = f.history.now()
}

// offset is how far a server is in the stream of writes.
func (f *failover) offset(r *testserver.Redis) int64 {
	f.t.Helper()
	info, err := r.Do("INFO", "replication")
	if err != nil {
		f.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "master_repl_offset:")
	digits, _, _ := strings.Cut(rest, "\r")
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		f.t.Fatalf("%v in\n%s", err, info)
	}
	return offset
}

func (f *failover) until(what string, so func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(startTimeout); !so(); time.Sleep(lead / 20) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: not within %v", what, startTimeout)
		}
	}
}

func (f *failover) name() string {
	return fmt.Sprintf("Sentinel: the master dies, its replica %v behind", f.stalled)
}

func (f *failover) report(t *testing.T) {
	t.Helper()
	known, perhaps := f.history.charged("book")
	unheard := f.unheard()
	used, err := f.used(t.Context(), f.ask[0])
	lost := max(0, known-used)
	r := row{
		fault: f.name(), promise: "forgotten is at most what was granted since the replica heard of it",
		measured: fmt.Sprintf("%d forgotten, and perhaps some of %d unknown; %d granted in that time", lost, perhaps, unheard),
	}
	if err != nil || lost > unheard {
		r.fail(t, "%s: %v", r.measured, err)
	}
	report(r)
}

// unheard is how many units the master may have granted since its replica heard of it.
func (f *failover) unheard() int64 {
	var n int64
	for i := range f.history.ops {
		if o := &f.history.ops[i]; o.outcome == granted && o.ret > f.heard && o.call < f.died {
			n += o.Granted
		}
	}
	return n
}

// times are how soon callers heard from the new master.
func (f *failover) times(late time.Duration) []timed {
	first := int64(forever)
	for i := range f.history.ops {
		if o := &f.history.ops[i]; o.stores() && o.call > f.died {
			first = min(first, o.ret)
		}
	}
	since := func(instant int64) time.Duration { return time.Duration(first - instant).Round(10 * time.Millisecond) }
	lateness := fmt.Sprintf("; this machine was up to %v late", late.Round(time.Millisecond))
	return []timed{
		{row: row{
			fault: f.name(), promise: fmt.Sprintf("a decision %v after its death", afterDeath), measured: since(f.died).String() + lateness,
		}, kept: since(f.died)-late <= afterDeath, late: late > lead},
		{row: row{
			fault: f.name(), promise: fmt.Sprintf("a decision %v after a sentinel names the replica", afterNamed),
			measured: fmt.Sprintf("%v, %v after it took over%s", since(f.named), since(f.replaced), lateness),
		}, kept: since(f.named)-late <= afterNamed, late: late > lead},
	}
}

// A wire is the link of a replica to its master, which can be stalled.
type wire struct {
	listener net.Listener
	master   string
	stalled  sync.RWMutex // locked while it is
	ends     sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

// layWire has the replica follow its master through a wire, and the sentinels be quick.
func layWire(t *testing.T, s *testserver.Sentinel) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, master: s.Master.Addr()}
	w.ends.Go(w.accept)
	t.Cleanup(w.cut)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	do := func(r *testserver.Redis, args ...string) string {
		reply, err := r.Do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	for _, sentinel := range s.Sentinels {
		do(sentinel, "SENTINEL", "SET", testserver.SentinelMaster, "down-after-milliseconds", strconv.FormatInt(suspects.Milliseconds(), 10))
	}
	do(s.Replicas[0], "REPLICAOF", "127.0.0.1", port)
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(lead / 10) {
		info := do(s.Replicas[0], "INFO", "replication")
		if strings.Contains(info, "master_port:"+port) && strings.Contains(info, "master_link_status:up") {
			return w
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica does not follow:\n%s", info)
		}
	}
}

func (w *wire) accept() {
	for {
		replica, err := w.listener.Accept()
		if err != nil {
			return
		}
		master, err := net.Dial("tcp", w.master)
		if err != nil {
			_ = replica.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, replica, master)
		w.mu.Unlock()
		w.ends.Go(func() { w.carry(replica, master) })
		w.ends.Go(func() { w.carry(master, replica) })
	}
}

// carry hands on what comes, unless the wire is stalled.
func (w *wire) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			w.stalled.RLock()
			_, err = to.Write(buffer[:n])
			w.stalled.RUnlock()
		}
		if err != nil && err != io.ErrNoProgress {
			return
		}
	}
}

// stall holds everything back, until the wire is cut.
func (w *wire) stall() { w.stalled.Lock() }

func (w *wire) cut() {
	_ = w.listener.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.stalled.TryLock() // so that there is something to unlock
	w.stalled.Unlock()
	w.ends.Wait()
}
