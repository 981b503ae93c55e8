//go:build unix

package journal

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file until it is closed, or the process ends; nil if another process has locked it.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}
