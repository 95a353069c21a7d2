//go:build e2e

package chart

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dockerfile is what of the Dockerfile decides about the image.
type dockerfile struct {
	runs       []string    // commands of the first stage
	copies     [][2]string // from the first stage to the image
	owners     map[string]string
	user, cmd  string
	entrypoint string
}

// readDockerfile reads the instructions that the Dockerfile uses.
func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	d := dockerfile{owners: map[string]string{}}
	last := ""
	for _, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "FROM":
			last = rest
		case "RUN":
			d.runs = append(d.runs, rest)
		case "COPY":
			fields := strings.Fields(rest)
			if fields[0] != "--from=build" {
				continue
			}
			from, to := fields[len(fields)-2], fields[len(fields)-1]
			d.copies = append(d.copies, [2]string{from, to})
			if owner, ok := strings.CutPrefix(fields[1], "--chown="); ok {
				d.owners[to] = owner
			}
		case "USER":
			d.user = rest
		case "ENTRYPOINT":
			d.entrypoint = rest
		case "CMD":
			d.cmd = rest
		}
	}
	require.Equal(t, "scratch", last, "the image is made from nothing, hence has no shell")
	return d
}

// image lays out what the Dockerfile puts into the image, by running its
// commands here: there is no need for a daemon to see what is in it.
func image(t *testing.T, d dockerfile) string {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for _, run := range d.runs {
		switch {
		case run == "go mod download":
		case strings.Contains(run, "make "):
			require.Contains(t, run, " make build ", "SPILLWAY_BIN is made by make build")
		default:
			text, err := exec.Command("sh", "-ec", strings.ReplaceAll(run, "/out/", out+"/")).CombinedOutput()
			require.NoError(t, err, string(text))
		}
	}
	bin, err := filepath.Abs(spillway(t))
	require.NoError(t, err)
	for _, c := range d.copies {
		from, to := strings.Replace(c[0], "/out/", out+"/", 1), filepath.Join(dir, c[1])
		if c[0] == "/src/bin/spillway" {
			from = bin
		}
		if _, err := os.Stat(from); err != nil && strings.HasPrefix(c[0], "/etc/ssl/") {
			t.Logf("%s is not on this machine; the image's first stage has it", from)
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		text, err := exec.Command("cp", "-rL", from, to).CombinedOutput()
		require.NoError(t, err, string(text))
		if owner, ok := d.owners[c[1]]; ok {
			text, err := exec.Command("chown", "-R", owner, to).CombinedOutput()
			require.NoError(t, err, string(text))
		}
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// TestBuildContextE2E requires that the build sees every folder that the binary is
// made of: .dockerignore names what it may see.
func TestBuildContextE2E(t *testing.T) {
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	require.NoError(t, err)
	list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{.ImportPath}} {{join .EmbedFiles " "}}{{end}}{{end}}`, "./cmd/spillway")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(strings.TrimPrefix(line, "github.com/spillway-telemetry/spillway/"))
		top, _, _ := strings.Cut(fields[0], "/")
		require.Contains(t, string(ignore), "\n!"+top+"\n")
		for _, embedded := range fields {
			require.NotContains(t, embedded, "testdata/", "the build does not see what is in a folder testdata")
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root folder and the user of a process")
	}
	for _, program := range []string{"unshare", "nsenter", "mount", "chroot", "ldd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine allows no namespaces (%v): %s", err, out)
	}
}

// TestImageE2E shows that the image holds nothing but what it should, that the
// binary needs no library, and that it runs as the image says: not as root, with
// a root folder that cannot be written to.
func TestImageE2E(t *testing.T) {
	requireRoot(t)
	d := readDockerfile(t)
	require.Equal(t, "65532:65532", d.user)
	require.Equal(t, `["/usr/bin/spillway"]`, d.entrypoint)
	dir := image(t, d)

	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(p, dir))
		}
		return err
	}))
	require.Subset(t, []string{"/etc/spillway/config/spillway.yaml", "/etc/ssl/certs/ca-certificates.crt", "/usr/bin/spillway"}, files)

	requireStatic(t, filepath.Join(dir, "usr/bin/spillway"))
	p := startPod(t, podSpec{image: dir, user: d.user, args: args(t, d.cmd)})
	p.requireConfined(t)
	require.Contains(t, p.get(t, "/metrics"), "spillway_build_info")
	// The embedded store is where the image's user may write.
	_, err := os.Stat(filepath.Join(dir, "data", "metrics", "wal"))
	require.NoError(t, err)
}

// args reads a list in JSON form, as CMD has it.
func args(t *testing.T, list string) []string {
	t.Helper()
	var out []string
	for _, part := range strings.Split(strings.Trim(list, "[]"), ",") {
		out = append(out, strings.Trim(strings.TrimSpace(part), `"`))
	}
	require.NotEmpty(t, out)
	return out
}

// requireStatic requires a program that no loader and no library is needed for.
func requireStatic(t *testing.T, file string) {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type)
	}
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	out, _ := exec.Command("ldd", file).CombinedOutput()
	require.Contains(t, string(out), "not a dynamic executable")
}
