// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkSandbox compares what the daemon has to write with what its unit lets it
// write. proc is the daemon's directory below /proc.
func checkSandbox(proc string, directories, files []string) []Finding {
	const check = "unit"
	var out []Finding
	for _, dir := range directories {
		switch readOnly, err := isReadOnly(filepath.Join(proc, "root", dir)); {
		case errors.Is(err, fs.ErrNotExist): // who needs it says so
		case err != nil:
			detail := fmt.Sprintf("cannot tell what the daemon may write: %v", err)
			out = append(out, warn(check, detail, asRoot))
		case readOnly:
			out = append(out, fail(check, fmt.Errorf("%s: read-only for the daemon", dir),
				"run systemctl restart image-update-agent if the directory is newer than the daemon; "+
					"otherwise add ReadWritePaths="+dir+" below [Service] with systemctl edit image-update-agent"))
		}
	}
	for _, file := range files {
		group, known, err := knowsGroupOf(proc, file)
		if err == nil && !known {
			detail := fmt.Sprintf("%s: the daemon cannot keep the group %d of the file, so it does not write it", file, group)
			out = append(out, warn(check, detail,
				"chgrp root "+file+", or give the daemon the permission: see docs/configuration.md"))
		}
	}
	if len(out) == 0 {
		return []Finding{ok(check, "the daemon can write all its files")}
	}
	return out
}

// isReadOnly reports whether a directory is on a read-only mount. Below the root of a process (proc_pid_root(5)) these
// are the mounts of the process.
func isReadOnly(dir string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stat.Flags&unix.ST_RDONLY != 0, nil
}

// knowsGroupOf reports whether the user namespace of a process has the group of a
// file (user_namespaces(7)): only then can it give a file to that group.
func knowsGroupOf(proc, file string) (group uint32, known bool, err error) {
	info, err := os.Lstat(file)
	if err != nil {
		return 0, false, err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, false, errors.ErrUnsupported
	}
	ids, err := os.ReadFile(filepath.Join(proc, "gid_map"))
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(ids)) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, false, fmt.Errorf("%s: gid_map: %w", proc, err)
		}
		if gid := uint64(stat.Gid); gid >= outside && gid < outside+count {
			return stat.Gid, true, nil
		}
	}
	return stat.Gid, false, nil
}
