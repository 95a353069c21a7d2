//go:build unix

package file

import (
	"fmt"
	"os"
	"syscall"
)

// lockFolder takes the lock of a folder, which goes with the process.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is locked by another process, or by another sink of this one: give each its own folder: %w", path, err)
	}
	return f, nil
}
