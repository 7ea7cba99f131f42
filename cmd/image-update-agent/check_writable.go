// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkWritable looks at what the daemon has to write, from outside of its sandbox:
// whose it is, whether its file system is writable, and whether it is immutable.
func (s settings) checkWritable() []finding {
	const check = "writable"
	dirs := []string{s.PodManifests, s.StateDir, s.RuntimeDir}
	files := []string{}
	if s.Grains.Enabled {
		dirs, files = append(dirs, filepath.Dir(s.Grains.Path)), append(files, s.Grains.Path)
	}
	if entries, err := os.ReadDir(s.PodManifests); err == nil {
		for _, e := range entries {
			files = append(files, filepath.Join(s.PodManifests, e.Name()))
		}
	}
	var out []finding
	for _, dir := range dirs {
		out = append(out, readOnlyFinding(dir)...)
	}
	for _, path := range append(dirs, files...) {
		out = append(out, ownerFinding(path)...)
		if flags, err := attributes(path); err == nil {
			out = append(out, attributeFinding(path, flags)...)
		}
	}
	if len(out) > 0 {
		return out
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	return []finding{ok(check, cmp.Or(strings.Join(dirs, ", "), "nothing of it is there yet"))}
}

func readOnlyFinding(dir string) []finding {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	if err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return nil // what is not there is another check's
	}
	return []finding{fail("writable", fmt.Errorf("%s: its file system is read-only", dir),
		"mount it writable: /etc and /var are so on a node with a read-only root; after an error of the disk, see dmesg")}
}

// ownerFinding names what is somebody else's: the daemon neither reads nor replaces
// it.
func ownerFinding(path string) []finding {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is || stat.Uid == 0 || int(stat.Uid) == os.Geteuid() {
		return nil
	}
	err = fmt.Errorf("%s: owned by user %d, who could change what runs as root", path, stat.Uid)
	return []finding{fail("writable", err, "chown root "+path)}
}

func attributeFinding(path string, attributes uint64) []finding {
	if attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) == 0 {
		return nil
	}
	return []finding{fail("writable", fmt.Errorf("%s: immutable (chattr)", path), "chattr -ia "+path)}
}

// attributes are those of statx(2), which tells of chattr without opening the file.
func attributes(path string) (uint64, error) {
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &x)
	if err != nil {
		return 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return x.Attributes & x.Attributes_mask, nil
}

// aside is the end of the name of a pod manifest that was set aside.
const aside = ".image-update-agent-aside"

// checkAside names pod manifests that an apply has left set aside: their pods are
// not there.
func (s settings) checkAside() []finding {
	const check = "set aside"
	entries, err := os.ReadDir(s.PodManifests)
	if err != nil {
		return nil // the directory's own check has said so
	}
	var out []finding
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), aside) {
			path := filepath.Join(s.PodManifests, e.Name())
			out = append(out, warn(check, path+": its pod is away, unless it is applied right now",
				"image-update-agent put-back"))
		}
	}
	if len(out) == 0 {
		return []finding{ok(check, "no pod manifest")}
	}
	return out
}
