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

// kubeletMax is the size that kubelet does not read any more, in bytes (pkg/kubelet/config/common.go).
const kubeletMax = 10 << 20

// kubeletReads returns what kubelet reads of a file that the agent must not use, at most limit bytes of it; or that
// kubelet passes over it. Neither: it is not known. kubelet follows symlinks, whatever the owner and the mode, and
// reads regular files alone (pkg/kubelet/config/file.go, extractFromDir).
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
	// It may be another file by now: a FIFO must not block.
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

// hidden are the directories that systemd empties for the daemon and not for kubelet: ProtectHome, PrivateTmp and
// PrivateDevices.
var hidden = []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/", "/dev/"}

// isHidden reports whether a symlink may only look as if it led nowhere.
func isHidden(path string) bool {
	missing, is := errors.AsType[*fs.PathError](evalError(path))
	return is && slices.ContainsFunc(hidden, func(dir string) bool {
		return strings.HasPrefix(missing.Path, dir) && !strings.HasPrefix(path, dir)
	})
}

// evalError names what is missing, behind all symlinks.
func evalError(path string) error {
	_, err := filepath.EvalSymlinks(path)
	return err
}
