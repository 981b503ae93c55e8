//go:build unix

package journal

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnlock wants a folder to be free once its journal has stopped, although another descriptor of the
// locked file is open, as in a child that is being started.
func TestUnlock(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), lockName)
	lock, err := lockFile(name)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	child, err := unix.Dup(int(lock.(interface{ Fd() uintptr }).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockFile(name)
	if err != nil || again == nil {
		t.Fatal("it is still locked", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
