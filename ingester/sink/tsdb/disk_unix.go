//go:build linux || darwin

package tsdb

import "syscall"

// freeBytes is the space that an ordinary user may still fill on the file
// system of path; false if it cannot be told.
func freeBytes(path string) (int64, bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
