// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The places of the configuration, below the root.
const (
	vendorFile = "/usr/share/image-update-agent/config.yaml"
	adminFile  = "/etc/image-update-agent/config.yaml"
	dropIns    = "/etc/image-update-agent/config.d"
)

// IntervalVariable is the environment's name for interval; it wins over the
// files. Empty is as good as unset, as in a sysconfig file.
const IntervalVariable = "UPDATE_POLLING_INTERVAL"

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// maxDropIns bounds the drop-ins.
const maxDropIns = 256

// Sources are where the configuration comes from.
type Sources struct {
	// Root is the directory that stands for "/": of the files read here, and of
	// every path in the Settings. Empty is the host's own.
	Root string
	// File, if set, is read in place of the admin's file and drop-ins. It is not
	// below Root, and it must exist.
	File string
	// Env looks up the environment, as os.LookupEnv does; nil is an empty one.
	Env func(name string) (string, bool)
}

// Config is a configuration that was read and is valid.
type Config struct {
	Settings Settings
	// Files are those that were read, the first lowest.
	Files  []string
	merged fragment
}

// Load reads, merges and validates. Its error has one line for each problem.
func Load(from Sources) (*Config, error) {
	var c Config
	var found problems
	host := from.host()
	fragments := []fragment{defaults(), host}
	files, err := from.files()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := readFile(file.path)
		if errors.Is(err, fs.ErrNotExist) && !file.required {
			continue
		}
		if err != nil {
			found.add(origin{place: file.path}, err)
			continue
		}
		f, err := parse(file.path, data)
		if err != nil {
			found.join(err)
			continue
		}
		c.Files = append(c.Files, file.path)
		fragments = append(fragments, f)
	}
	environment, err := from.environment()
	found.join(err)
	if err := found.err(); err != nil {
		return nil, err
	}
	c.merged = merge(append(fragments, environment)...)
	resolve(c.merged, host, highMark, "0", strconv.Itoa(kubeletsHighMark))
	resolve(c.merged, host, kubeletPods, "", "")
	c.Settings, err = settings(c.merged, from.Root)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

var errSuffix = errors.New("not read for its name, want the suffix .yaml, or a leading dot to set it aside")

// sourceFile is a file to read.
type sourceFile struct {
	path     string
	required bool
}

// files lists the configuration's files, the lowest first.
func (s Sources) files() ([]sourceFile, error) {
	files := []sourceFile{{path: s.Root + vendorFile}}
	if s.File != "" {
		return append(files, sourceFile{s.File, true}), nil
	}
	files = append(files, sourceFile{path: s.Root + adminFile})
	dir := s.Root + dropIns
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return nil, placed{origin{place: dir}, cause(err)}
	}
	if len(entries) > maxDropIns {
		return nil, placed{origin{place: dir}, fmt.Errorf("more than %d files", maxDropIns)}
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."): // an editor's or a package manager's work in progress
		case !strings.HasSuffix(name, ".yaml"):
			return nil, placed{origin{place: filepath.Join(dir, name)}, errSuffix}
		default:
			files = append(files, sourceFile{filepath.Join(dir, name), true})
		}
	}
	return files, nil
}

// environment is the fragment of the environment.
func (s Sources) environment() (fragment, error) {
	if s.Env == nil {
		return nil, nil
	}
	value, _ := s.Env(IntervalVariable)
	if value == "" {
		return nil, nil
	}
	from := origin{place: "environment " + IntervalVariable}
	k, _ := find(schema(), "interval")
	if err := k.check(value); err != nil {
		return nil, placed{from, fmt.Errorf("%q: %w", value, err)}
	}
	return fragment{"interval": {from: from, text: value}}, nil
}

// readFile reads a regular file that nobody but root and we may write to: what
// it says is done with root's rights. Symlinks are followed, for admins use
// them; a FIFO does not block.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, cause(err)
	}
	if err := trusted(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, cause(err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, nil
}

func trusted(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("mode %04o, others may write to it (chmod go-w)", info.Mode().Perm())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
}

// cause drops operation and path from an error whose path is said already.
func cause(err error) error {
	if at, is := errors.AsType[*fs.PathError](err); is {
		return at.Err
	}
	return err
}
