//go:build unix && !linux

package testserver

import "testing"

// Folder returns a folder for a server's data, which is removed when the test ends.
func Folder(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}
