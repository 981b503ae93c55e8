//go:build unix

package journal

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A locked file is unlocked when it is closed.
type locked struct{ *os.File }

func (f locked) Close() error {
	// A child that is being started has the file open, too, and would keep the lock until it runs.
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.File.Close())
}

// lockFile locks a file until it is closed, or the process ends; nil if another process has locked it.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return locked{file}, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}
