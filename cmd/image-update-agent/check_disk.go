// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/config"
)

// recordRoom is what the record and the files that wait may take, in bytes, many
// times over: a record of 1,000 images has less than 1 MB.
const recordRoom = 64 << 20

// checkDisk looks at the file system of the agent's own record.
func (s settings) checkDisk() finding {
	dir := s.StateDir
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fail("disk", fmt.Errorf("%s: %w", dir, err), "check the file system")
	}
	return diskFinding(dir, float64(fs.Bavail)*float64(fs.Bsize)) // their types differ between architectures
}

// recordLeast is what one record and the copy that replaces it need at least: with
// less nothing that is decided can be kept.
const recordLeast = 1 << 20

func diskFinding(dir string, free float64) finding {
	const check, remedy = "disk", "make room: the agent keeps its record there"
	detail := fmt.Sprintf("%s: %s free", dir, agent.Bytes(int64(free)))
	switch {
	case free < recordLeast:
		return fail(check, fmt.Errorf("%s: full: approvals, holds and what ran well cannot be kept", detail), remedy)
	case free < recordRoom:
		return warn(check, detail, remedy)
	default:
		return ok(check, detail)
	}
}

// checkImageSpace tells what the next pull may bring.
func checkImageSpace(fs agent.Filesystem, d config.Disk) finding {
	const check = "image file system"
	if fs.Size <= 0 {
		return warn(check, fmt.Sprintf("%s: of unknown size", fs.Path), "check the file system")
	}
	reserve := max(d.Reserve, fs.Size/100*int64(d.ReservePercent))
	collects := fs.Size / 100 * int64(100-d.HighMark) // what is free then
	room := fs.Free - max(reserve, collects)
	detail := fmt.Sprintf("%s: %s of %s free; %s are reserved, and at %d %% kubelet removes images (%s free)",
		fs.Path, agent.Bytes(fs.Free), agent.Bytes(fs.Size), agent.Bytes(reserve), d.HighMark, agent.Bytes(collects))
	const remedy = "make room: `crictl rmi IMAGE` of what nobody needs (its --prune, before crictl 1.30, takes what " +
		"is staged and the way back along); or enlarge the file system"
	switch {
	case room > 0:
		return ok(check, detail+": room for "+agent.Bytes(room))
	case fs.Free < collects:
		return warn(check, detail+": kubelet removes images now", remedy)
	default:
		return warn(check, fmt.Sprintf("%s: nothing is staged until %s more are free", detail, agent.Bytes(1-room)),
			remedy+", or lower disk.reserve or disk.reservePercent")
	}
}
