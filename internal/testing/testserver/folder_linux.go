package testserver

import (
	"os"
	"syscall"
	"testing"
)

// Folder returns a folder for a server's data, which is removed when the test ends. It is
// in memory where there is room: a disk that stalls would be a fault that no test asked
// for.
func Folder(t testing.TB) string {
	t.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var free syscall.Statfs_t
	if err := syscall.Statfs(memory, &free); err != nil || free.Bavail*uint64(free.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "weir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
