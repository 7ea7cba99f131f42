// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// kubeletMax is the size in bytes from which kubelet does not read a file (pkg/kubelet/config/common.go).
const kubeletMax = 10 << 20

// kubeletReads returns the content that kubelet reads from a file that the agent must not use, at most limit bytes; or
// that kubelet ignores the file. If neither, it is unknown. kubelet follows symlinks, whatever their owner and mode,
// and reads only regular files (pkg/kubelet/config/file.go, extractFromDir).
func kubeletReads(path string, limit int64) (data []byte, passedOver bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP):
		return nil, !isHidden(path)
	case err != nil:
		return nil, false
	case !info.Mode().IsRegular(), info.Size() >= kubeletMax:
		return nil, true
	}
	// It may have been replaced: a FIFO must not block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = file.Close() }()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	data, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil || int64(len(data)) > limit {
		return nil, false
	}
	return data, false
}

// hidden are the directories that systemd hides from the daemon but not from kubelet: ProtectHome, PrivateTmp and
// PrivateDevices.
var hidden = []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/", "/dev/"}

// isHidden reports whether a symlink may appear dangling only because of that.
func isHidden(path string) bool {
	missing, is := errors.AsType[*fs.PathError](evalError(path))
	return is && slices.ContainsFunc(hidden, func(dir string) bool {
		return strings.HasPrefix(missing.Path, dir) && !strings.HasPrefix(path, dir)
	})
}

// evalError names the missing path after resolving all symlinks.
func evalError(path string) error {
	_, err := filepath.EvalSymlinks(path)
	return err
}
