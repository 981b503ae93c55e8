package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
)

// A crash is a way in which Redis dies, over and over, and what it may forget.
type crash struct {
	name, promise string
	args          []string // of redis-server
	rounds        int      // in a full run
	power         bool     // its host dies too: what was not written to disk is gone
	// may is how much may be lost at once.
	may func(audit) int64
}

// An audit is what happened to units that were granted before a crash.
type audit struct {
	paid   int64 // in all
	lately int64 // in the second before
	recent int64 // in two seconds
	lost   int64
}

func none(audit) int64         { return 0 }
func seconds(a audit) int64    { return a.recent } // writing to disk once a second may take one itself
func everything(a audit) int64 { return a.paid }

var always, everysec = keeping("always"), keeping("everysec")

func keeping(fsync string) []string {
	return []string{"--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"}
}

var crashes = []crash{
	{"kill -9, AOF always, 64 callers", "nothing granted is lost", always, 50, false, none},
	{"power lost, AOF always", "nothing granted is lost", always, 10, true, none},
	{"power lost, AOF everysec", "lost is at most what was granted in the last 2 s", everysec, 10, true, seconds},
	{"kill -9, restart empty, 64 callers", "at most one more limit a restart", nil, 20, false, everything},
}

// TestCrashes kills Redis under 64 callers, again and again, and compares what it
// knows afterwards with what it had granted before.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := c.run(t)
			if err != nil {
				r.fail(t, "%v", err)
			}
			report(r)
		})
	}
}

// TestPowerIsNoticed shows that a Redis which writes to disk once a second is not
// taken for one that always does.
func TestPowerIsNoticed(t *testing.T) {
	t.Parallel()
	c := crash{"mutant: AOF everysec for always", "the audit is red", everysec, 2, true, none}
	r, err := c.run(t)
	for tries := 1; err == nil && tries < 5; tries++ { // too little may be written in a second
		r, err = c.run(t)
	}
	if err == nil {
		r.fail(t, "not noticed: %s", r.measured)
	}
	r.measured = fmt.Sprint(err)
	report(r)
}

// run lets Redis die some times, and all over again where it restored a part of a
// script, which proves nothing.
func (c *crash) run(t *testing.T) (row, error) {
	t.Helper()
	r := row{fault: c.name, promise: c.promise, measured: "Redis restored a part of a script each time"}
	for range 5 {
		disk := newDisk(t)
		w := newWorld(t, makeup{
			env: disk.env, args: append([]string{"--dir", disk.folder}, c.args...), ask: besieged, callers: 64 / instances, think: 20 * time.Millisecond,
		})
		found := c.deaths(w, disk, &r)
		if !w.server.Torn() {
			return r, errors.Join(found...)
		}
	}
	return r, errors.New(r.measured)
}

// besieged are units that are counted, and a budget that is spent at once.
var besieged = append(only("book", "repeat"),
	&subject{"spent", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 300, Period: decades}), spent})

// deaths is all that is wrong with one world.
func (c *crash) deaths(w *world, d *disk, r *row) []error {
	rounds := min(c.rounds, 2)
	if *full {
		rounds = c.rounds
	}
	var found []error
	var sum, worst audit
	verdicts := w.run(rounds, func(w *world) {
		if c.may(audit{paid: 1, recent: 1}) > 0 {
			w.history.lose()
		}
		a := w.crash(c, d, sum.lost)
		if most := c.may(a); a.lost > most {
			found = append(found, fmt.Errorf("%d lost of %d that were granted, at most %d", a.lost, a.paid, most))
		}
		sum.paid, sum.lost = a.paid, sum.lost+a.lost
		if a.lost >= worst.lost {
			worst = a
		}
	})
	r.measured = fmt.Sprintf("%d crashes, %d granted before them, %d lost, at once at most %d where %d were granted in the last second",
		rounds, sum.paid, sum.lost, worst.lost, worst.lately)
	granted, _ := w.history.charged("spent")
	if most := besieged[2].limit.Count * (1 + w.history.losses); granted > most {
		found = append(found, fmt.Errorf("%d granted under a limit of %d, at most %d", granted, besieged[2].limit.Count, most))
	}
	for name, err := range verdicts {
		if err != nil {
			found = append(found, fmt.Errorf("%s: %w", name, err))
		}
	}
	return found
}

// crash kills Redis and starts it again. So much had been lost before.
func (w *world) crash(c *crash, d *disk, before int64) audit {
	w.t.Helper()
	run := struck / 2
	if c.power {
		run = time.Second + rand.N(1200*time.Millisecond)
	}
	var paid []int64 // every pace
	const pace = 10 * time.Millisecond
	for range run / pace {
		paid = append(paid, w.paid.Load())
		time.Sleep(pace)
	}
	w.server.Kill()
	back := w.history.absent()
	time.Sleep(2 * pace) // for what was answered and not yet heard
	back()
	a := audit{paid: w.paid.Load()}
	ago := func(d time.Duration) int64 { return a.paid - paid[max(0, len(paid)-1-int(d/pace))] }
	a.lately, a.recent = ago(time.Second), ago(2*time.Second)
	if c.power {
		if err := d.forget(); err != nil {
			w.t.Error(err)
		}
	}
	w.server.Restart()
	a.lost = max(0, a.paid-before-w.booked())
	return a
}

// booked is how many units the store knows of.
func (w *world) booked() int64 {
	w.t.Helper()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		used, err := w.used(w.t.Context(), besieged[0])
		if err == nil {
			return used
		}
		if time.Now().After(deadline) {
			w.t.Fatal(err)
		}
	}
}

// A disk knows how much of Redis's append-only file has reached it.
type disk struct {
	folder string // of Redis
	file   string // with the number of bytes
	env    []string
}

// syncShim builds once what stands between Redis and the disk.
var syncShim = sync.OnceValues(func() (string, error) {
	return compile("syncshim.so", filepath.Join("testdata", "syncshim.c"))
})

func newDisk(t *testing.T) *disk {
	t.Helper()
	testserver.Require(t, "cc")
	library, err := syncShim()
	if err != nil {
		t.Fatalf("cc: %v", err)
	}
	d := &disk{folder: testserver.Folder(t), file: filepath.Join(testserver.Folder(t), "synced")}
	d.env = []string{"LD_PRELOAD=" + library, "SYNCSHIM_FILE=" + d.file}
	if err := os.WriteFile(d.file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// forget takes from an append-only file what had not reached the disk.
func (d *disk) forget() error {
	size, err := os.ReadFile(d.file)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(d.folder, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("append-only files: %v, %v", files, err)
	}
	return os.Truncate(files[0], int64(binary.NativeEndian.Uint64(size)))
}
