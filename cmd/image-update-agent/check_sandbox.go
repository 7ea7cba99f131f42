// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkSandbox compares what the daemon has to write with what its unit lets it
// write. Nothing is said where none runs: another check does.
func (s settings) checkSandbox(ctx context.Context) []finding {
	daemon, err := peerOf(ctx, s.socket("agent.sock"))
	if err != nil {
		return nil
	}
	places := []string{s.PodManifests, s.StateDir}
	var files []string
	if entries, err := os.ReadDir(s.PodManifests); err == nil {
		for _, e := range entries {
			files = append(files, filepath.Join(s.PodManifests, e.Name()))
		}
	}
	if s.Grains.Enabled {
		places = append(places, filepath.Dir(s.Grains.Path))
		files = append(files, s.Grains.Path)
	}
	return daemon.checkSandbox(places, files)
}

func (p peer) checkSandbox(directories, files []string) []finding {
	const check = "unit"
	var out []finding
	for _, dir := range directories {
		switch readOnly, err := p.readOnly(dir); {
		case errors.Is(err, fs.ErrNotExist): // who needs it says so
		case err != nil:
			detail := fmt.Sprintf("what the daemon may write cannot be seen: %v", err)
			out = append(out, warn(check, detail, "run doctor as root"))
		case readOnly:
			out = append(out, fail(check, fmt.Errorf("%s: read-only for the daemon", dir),
				"systemctl restart image-update-agent, if the directory is younger than the daemon; "+
					"else `systemctl edit image-update-agent` with ReadWritePaths="+dir+" below [Service]"))
		}
	}
	for _, file := range files {
		group, known, err := p.knowsGroupOf(file)
		if err == nil && !known {
			detail := fmt.Sprintf("%s: the daemon cannot keep its group %d, so it does not write it", file, group)
			out = append(out, warn(check, detail,
				"chgrp root "+file+", or give the daemon what it needs: see \"Files of others\" in docs/operations.md"))
		}
	}
	if len(out) == 0 {
		return []finding{ok(check, "the daemon may write what it has to")}
	}
	return out
}

// readOnly tells whether the process has a directory on a read-only mount; it
// sees other mounts than we do (proc_pid_root(5)).
func (p peer) readOnly(dir string) (bool, error) {
	path := filepath.Join("/proc", strconv.Itoa(p.pid), "root", dir)
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return stat.Flags&unix.ST_RDONLY != 0, nil
}

// knowsGroupOf tells whether the user namespace of the process has the group of a
// file (user_namespaces(7)): only then can it give a file to that group.
func (p peer) knowsGroupOf(file string) (group uint32, known bool, err error) {
	info, err := os.Lstat(file)
	if err != nil {
		return 0, false, err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, false, errors.ErrUnsupported
	}
	ids, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "gid_map"))
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(ids)) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, false, fmt.Errorf("/proc: gid_map: %w", err)
		}
		if gid := uint64(stat.Gid); gid >= outside && gid < outside+count {
			return stat.Gid, true, nil
		}
	}
	return stat.Gid, false, nil
}
