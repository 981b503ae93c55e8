package cli

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// collectorRoom is the least number of bytes that are allocated between two
	// garbage collections. A server keeps so little memory that doubling it, as Go
	// does, would mean dozens of collections a second.
	collectorRoom = 64 << 20
	// roomDivisor bounds the room to a part of a memory limit.
	roomDivisor = 16
	// unlimitedBytes is about what version 1 of cgroups calls no limit.
	unlimitedBytes = 1 << 60
)

// settleMemory fits the garbage collector to a server. It uses up to 90 % of the memory
// limit of the process's cgroups unless GOMEMLIMIT is set. Unless GOGC is set, it returns
// a room that the caller must keep and never write to: the collector counts it as used
// and so runs less often, but the system never backs it with memory.
func settleMemory(getenv func(string) string, root fs.FS) (room []byte) {
	if limit, found := cgroupLimit(root); found && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
	if getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, min(collectorRoom, debug.SetMemoryLimit(-1)/roomDivisor))
}

const (
	// idlePeriod is the time in which an idle server allocates idleBytes at most.
	idlePeriod = 5 * time.Second
	idleBytes  = 4 << 20
	// notable is how much memory a collection must promise.
	notable = 32 << 20
	// collectionPause is the least time between two collections.
	collectionPause = time.Minute
)

// A heap is what the collector says of it.
type heap struct {
	allocated  uint64 // since the process began
	returnable uint64 // at most: garbage, and what is kept for later
}

func readHeap() heap {
	of := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(of)
	live, objects := of[1].Value.Uint64(), of[2].Value.Uint64()
	return heap{of[0].Value.Uint64(), max(objects, live) - live + of[3].Value.Uint64()}
}

// A collector returns the memory of a busy time to the system when a server has become idle.
// Go keeps it: an idle server allocates too little to reach the next collection.
type collector struct {
	last      heap
	collected time.Time
}

// due reports whether a server whose heap is read every idlePeriod should collect.
func (c *collector) due(now time.Time, h heap) bool {
	idle := h.allocated-c.last.allocated <= idleBytes
	c.last = h
	if !idle || h.returnable < notable || now.Sub(c.collected) < collectionPause {
		return false
	}
	c.collected = now
	return true
}

// returnMemory collects when a server is idle, until the function that it returns is called.
// With GOGC set it leaves that to the collector that was asked for.
func returnMemory(getenv func(string) string) (stop func()) {
	if getenv("GOGC") != "" {
		return func() {}
	}
	var collecting sync.WaitGroup
	ended := make(chan struct{})
	collecting.Go(func() {
		ticker := time.NewTicker(idlePeriod)
		defer ticker.Stop()
		c := collector{last: readHeap()}
		for {
			select {
			case now := <-ticker.C:
				if c.due(now, readHeap()) {
					debug.FreeOSMemory()
				}
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		collecting.Wait()
	}
}

// cgroupLimit is the least memory limit, in bytes, among the process's cgroup and
// those around it. The root is the machine's.
func cgroupLimit(root fs.FS) (limit int64, found bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	limit = math.MaxInt64
	for line := range strings.Lines(string(text)) {
		file, below, ok := limitFile(strings.TrimSpace(line))
		for ok {
			limit = min(limit, readLimit(root, path.Join(file.folder, below, file.name)))
			ok = below != "/"
			below = path.Dir(below)
		}
	}
	return limit, limit < unlimitedBytes
}

// A memoryFile is where the limits of a hierarchy of cgroups are.
type memoryFile struct{ folder, name string }

// limitFile finds the hierarchy that limits memory in a line of /proc/self/cgroup,
// and the place of the process in it.
func limitFile(line string) (file memoryFile, below string, ok bool) {
	fields := strings.SplitN(line, ":", 3)
	if len(fields) < 3 {
		return memoryFile{}, "", false
	}
	below = path.Join("/", fields[2])
	for controller := range strings.SplitSeq(fields[1], ",") {
		switch {
		case controller == "memory":
			return memoryFile{"sys/fs/cgroup/memory", "memory.limit_in_bytes"}, below, true
		case fields[0] == "0" && controller == "":
			return memoryFile{"sys/fs/cgroup", "memory.max"}, below, true
		}
	}
	return memoryFile{}, "", false
}

// readLimit is the limit in a file, or the largest number: not every cgroup has
// one, and a container does not see those around it.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return math.MaxInt64
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || limit <= 0 {
		return math.MaxInt64
	}
	return limit
}
