package cli

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
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
