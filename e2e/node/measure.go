// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"
)

// Server describes a containerd to measure.
type Server struct {
	Version Version
	// Gunzip is the program on containerd's PATH for decompression: igzip (containerd 2 only), unpigz; empty: none,
	// even if the machine has one.
	Gunzip string
	Config string // settings in TOML, added to those of the node
}

// gunzips maps programs to the Debian packages that contain them.
var gunzips = map[string][]string{"igzip": {"isal", "libisal2"}, "unpigz": {"pigz"}}

// FreshContainerd starts a containerd with an empty store on a node that has none; Discard ends it.
func (n *Node) FreshContainerd(s Server) *Containerd {
	n.tb.Helper()
	c := &Containerd{
		Version: s.Version, Socket: n.Path(socketPath), node: n, file: filepath.Join(n.Dir, "containerd/config.toml"),
	}
	config := config1
	if s.Version == Containerd2 {
		config = config2
	}
	c.bin = filepath.Dir(n.ContainerdProgram(s.Version))
	text := fmt.Sprintf(config, n.Dir, n.Root, n.Registry.Ref("pause:1"), n.Path(certsD), "") + s.Config
	if err := errors.Join(os.MkdirAll(filepath.Join(n.Dir, "containerd/root"), 0o711),
		os.WriteFile(c.file, []byte(text), 0o644)); err != nil {
		n.tb.Fatalf("node: containerd: %v", err)
	}
	unix.Sync() // so that writes of earlier measurements do not slow this one
	c.Process = n.run("containerd", n.gunzip(s.Gunzip, c.bin), filepath.Join(c.bin, "containerd"), "-c", c.file)
	cri := n.CRI()
	c.waitReady(func() error { return cri.ready(n.tb.Context()) })
	n.Containerd = c
	return c
}

// gunzip returns the environment of a containerd that decompresses with a program, or by itself.
func (n *Node) gunzip(program string, path ...string) []string {
	n.tb.Helper()
	disable := func(name string, off bool) string {
		return "CONTAINERD_DISABLE_" + name + "=" + strconv.FormatBool(off)
	}
	env := []string{disable("IGZIP", program != "igzip"), disable("PIGZ", program != "unpigz")}
	if program == "" {
		return append(env, searchPath(path...))
	}
	dir := filepath.Join(Cache(), "debian", program)
	if _, err := os.Stat(dir); err != nil {
		n.unpackDebian(dir, gunzips[program])
	}
	libraries, err := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu*"))
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	return append(env, searchPath(append(path, filepath.Join(dir, "usr/bin"))...),
		"LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
}

// unpackDebian unpacks packages into a directory instead of installing them, where every containerd would find them.
func (n *Node) unpackDebian(dir string, packages []string) {
	n.tb.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	n.output(append([]string{"sh", "-euc", `
		dir=$1; shift; new=$(mktemp -d "$dir.XXXX"); cd "$new"
		apt-get -qq -o APT::Sandbox::User=root download "$@" >&2
		for deb in *.deb; do dpkg -x "$deb" .; done
		chmod 755 "$new"; mv -T "$new" "$dir" || [ -d "$dir" ]`, "sh", dir}, packages...)...)
}

// Cache returns the directory of tools/setup for things that are built once.
func Cache() string {
	if dir := os.Getenv("IUA_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "image-update-agent")
}

// Discard stops containerd and removes its data.
func (c *Containerd) Discard() {
	c.node.tb.Helper()
	c.Stop()
	c.node.Containerd = nil
	if err := os.RemoveAll(filepath.Join(c.node.Dir, "containerd")); err != nil {
		c.node.tb.Fatalf("node: containerd: %v", err)
	}
}

// Ctr returns the path of this containerd's ctr.
func (c *Containerd) Ctr() string { return filepath.Join(c.bin, "ctr") }

// Used is the resource usage of a running process.
type Used struct {
	CPU  time.Duration // user and system time, including children that have ended
	Peak int64         // peak resident set in bytes, without children
}

// Used returns containerd's resource usage since its start.
func (c *Containerd) Used() Used {
	c.node.tb.Helper()
	return c.node.used(filepath.Join(c.bin, "containerd"), "-c", c.file)
}

// UsedBy returns the resource usage of a running program of the node, which it finds by its arguments.
func (n *Node) UsedBy(argv ...string) Used {
	n.tb.Helper()
	return n.used(argv...)
}

func (n *Node) used(argv ...string) Used {
	n.tb.Helper()
	want := strings.Join(argv, "\x00") + "\x00"
	dirs, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if line, gone := os.ReadFile(filepath.Join(dir, "cmdline")); gone == nil && string(line) == want {
			var u Used
			if u, err = usedBy(dir); err == nil {
				return u
			}
		}
	}
	n.tb.Fatalf("node: %q: no such process: %v", argv, err)
	return Used{}
}

// tick is the time unit of proc_pid_stat(5): USER_HZ is 100 on all architectures that Go supports.
const tick = 10 * time.Millisecond

func usedBy(dir string) (Used, error) {
	var u Used
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain any character
	fields := strings.Fields(rest)
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(ticks) * tick
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		return u, fmt.Errorf("%s: no VmHWM", dir)
	}
	_, err = fmt.Sscan(rest, &u.Peak)
	u.Peak <<= 10
	return u, err
}

// Program starts a program in the node; the caller waits for it.
func (n *Node) Program(name string, argv ...string) *Process {
	n.tb.Helper()
	return n.run(name, []string{searchPath(), "HOME=/root"}, argv...)
}

// Tool compiles e2e/cmd/NAME.
func (n *Node) Tool(name string) string {
	n.tb.Helper()
	return n.buildTool(name)
}

// PushMade pushes an image under the given tags.
func (r *Registry) PushMade(repository string, image v1.Image, tags ...string) {
	r.node.tb.Helper()
	repo, err := r.repository(repository)
	for _, tag := range tags {
		if err == nil {
			options := append(r.past(), remote.WithJobs(runtime.NumCPU()))
			err = remote.Write(repo.Tag(tag), image, options...)
		}
	}
	if err != nil {
		r.node.tb.Fatalf("node: push %s: %v", repository, err)
	}
}
