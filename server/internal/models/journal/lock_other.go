//go:build !unix

package journal

import (
	"io"
	"os"
)

// lockFile opens a file; there are no locks here.
func lockFile(name string) (io.Closer, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}
