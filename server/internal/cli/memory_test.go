package cli

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"
)

func machine(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return root
}

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  int64 // 0: none
	}{
		"no cgroups": {nil, 0},
		"version 2": {map[string]string{
			"proc/self/cgroup":                                   "0::/system.slice/weir.service",
			"sys/fs/cgroup/system.slice/memory.max":              "max",
			"sys/fs/cgroup/system.slice/weir.service/x":          "",
			"sys/fs/cgroup/system.slice/weir.service/memory.max": "268435456",
		}, 256 << 20},
		"version 2, around it": {map[string]string{
			"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/memory.max": "1048576", "sys/fs/cgroup/a/b/memory.max": "2097152",
		}, 1 << 20},
		"in a container": {map[string]string{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1048576"}, 1 << 20},
		"unlimited":      {map[string]string{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, 0},
		"version 1, out of sight": {map[string]string{
			"proc/self/cgroup":                           "5:cpu,cpuacct:/\n4:memory:/docker/0af\n0::/",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "3145728",
		}, 3 << 20},
		"version 1, unlimited": {map[string]string{
			"proc/self/cgroup": "4:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
		}, 0},
		"nonsense": {map[string]string{"proc/self/cgroup": "what\n::", "sys/fs/cgroup/memory.max": "1048576"}, 0},
	} {
		limit, found := cgroupLimit(machine(c.files))
		if found != (c.want > 0) || found && limit != c.want {
			t.Errorf("%s: got %d, %v, want %d", name, limit, found, c.want)
		}
	}
}

// TestSettleMemory changes what the whole process has, so it is alone.
func TestSettleMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	limited := machine(map[string]string{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1073741824"})
	small := machine(map[string]string{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "104857600"})
	for name, c := range map[string]struct {
		root  fstest.MapFS
		env   map[string]string
		room  int
		limit int64
	}{
		"nothing said":   {machine(nil), nil, collectorRoom, math.MaxInt64},
		"a limit":        {limited, nil, 1073741824 / 10 * 9 / roomDivisor, 1073741824 / 10 * 9},
		"a small one":    {small, nil, 104857600 / 10 * 9 / roomDivisor, 104857600 / 10 * 9},
		"GOMEMLIMIT set": {limited, map[string]string{"GOMEMLIMIT": "8GiB"}, collectorRoom, math.MaxInt64},
		"GOGC set":       {limited, map[string]string{"GOGC": "100"}, 0, 1073741824 / 10 * 9},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		room := settleMemory(func(name string) string { return c.env[name] }, c.root)
		if limit := debug.SetMemoryLimit(-1); len(room) != c.room || limit != c.limit {
			t.Errorf("%s: room %d, limit %d, want %d and %d", name, len(room), limit, c.room, c.limit)
		}
	}
}

func TestCollector(t *testing.T) {
	t.Parallel()
	var c collector
	now, allocated := time.Now(), uint64(0)
	for _, step := range []struct {
		name                  string
		allocated, returnable uint64
		due                   bool
	}{
		{"busy", 1 << 30, 1 << 30, false},
		{"idle", 1 << 20, 1 << 30, true},
		{"idle, just collected", 1 << 20, 1 << 30, false},
		{"idle, little garbage", 1 << 20, 1 << 20, false},
	} {
		now, allocated = now.Add(idlePeriod), allocated+step.allocated
		if due := c.due(now, heap{allocated, step.returnable}); due != step.due {
			t.Errorf("%s: due is %v", step.name, due)
		}
	}
	if !c.due(now.Add(collectionPause), heap{allocated, notable}) {
		t.Error("not due a minute later")
	}
}

// TestReadHeap has garbage and collects it, so it is alone.
func TestReadHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	clean := readHeap()
	runtime.KeepAlive(make([]byte, 2*notable))
	dirty := readHeap()
	debug.FreeOSMemory()
	cleaned := readHeap()
	if dirty.allocated-clean.allocated < 2*notable || dirty.returnable < notable || cleaned.returnable >= notable {
		t.Errorf("clean %v, with %d bytes of garbage %v, cleaned %v", clean, 2*notable, dirty, cleaned)
	}
}
