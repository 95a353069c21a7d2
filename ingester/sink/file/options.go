package file

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// Options is the configuration of one sink of this kind:
//
//	file: {path: ./data/files, rotate_bytes: 67108864, max_bytes: 21474836480}
type Options struct {
	// Path is the folder of the files, with one folder in it for each stream. It is
	// made if it is missing and belongs to one process at a time. No default.
	Path string `yaml:"path"`
	// RotateBytes is how many bytes a file may hold, uncompressed, before it is closed
	// and the next one begins. Default 134217728 (128 MiB).
	RotateBytes int64 `yaml:"rotate_bytes"`
	// RotateAge is how old a file may get before it is closed. Default 1h.
	RotateAge model.Duration `yaml:"rotate_age"`
	// Compression is what closed files are compressed with: zstd, or none. Default
	// zstd.
	Compression string `yaml:"compression"`
	// MaxBytes is how many bytes the files of each stream may take. Beyond that the
	// oldest closed ones are deleted. Default 10737418240 (10 GiB).
	MaxBytes int64 `yaml:"max_bytes"`
	// Fsync waits for the disk with every write. Without it a crash of the process
	// loses nothing, and a crash of the machine what the operating system had not
	// written yet. Default false.
	Fsync bool `yaml:"fsync"`

	// Logger and Registerer are set by the program. The Registerer may be nil.
	Logger     *slog.Logger          `yaml:"-"`
	Registerer prometheus.Registerer `yaml:"-"`
}

// DefaultOptions are the options of which nothing was set but the folder.
func DefaultOptions(path string) Options {
	return Options{Path: path, RotateBytes: 128 << 20, RotateAge: model.Duration(time.Hour), Compression: "zstd", MaxBytes: 10 << 30}
}

// Validate reports every problem of the options, each with the field as the user
// wrote it. It changes nothing.
func (o *Options) Validate() error {
	var errs []error
	if o.Path == "" {
		errs = append(errs, errors.New("path is empty: name a folder for the files"))
	}
	if o.RotateBytes < 1<<10 {
		errs = append(errs, fmt.Errorf("rotate_bytes is %d: it must be at least 1024", o.RotateBytes))
	}
	if time.Duration(o.RotateAge) < time.Second {
		errs = append(errs, fmt.Errorf("rotate_age is %s: it must be at least 1s", o.RotateAge))
	}
	if o.Compression != "zstd" && o.Compression != "none" {
		errs = append(errs, fmt.Errorf("compression is %q: it must be zstd or none", o.Compression))
	}
	if o.MaxBytes/2 < o.RotateBytes {
		errs = append(errs, fmt.Errorf("max_bytes is %d: it must be at least twice rotate_bytes (%d), or closed files would be deleted at once", o.MaxBytes, o.RotateBytes))
	}
	return errors.Join(errs...)
}
