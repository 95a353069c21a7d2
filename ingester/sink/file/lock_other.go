//go:build !unix

package file

import "os"

// lockFolder opens the lock of a folder, which this system cannot hold.
func lockFolder(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
}
