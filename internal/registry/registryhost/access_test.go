// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

const secretHosts = "[host.\"https://m1\"]\n[host.\"https://m1\".header]\nAuthorization = \"Basic hunter2\"\n"

// A user who cannot read a hosts.toml cannot read it after enable, nor a copy of it.
func TestCopyHasThePermissionsOfItsSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from string // below certs.d
		mode fs.FileMode
		gid  int
	}{
		"_default, of root alone":      {"_default", 0o600, 0},
		"_default, of a group":         {"_default", 0o640, 42},
		"the registry's, of root":      {suse, 0o600, 0},
		"the registry's, of a group":   {suse, 0o440, 42},
		"the registry's, of everybody": {suse, 0o644, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := certsD(t, map[string]string{c.from + "/hosts.toml": secretHosts})
			source := filepath.Join(dir, c.from, hostsTOML)
			require.NoError(t, os.Chown(source, 0, c.gid))
			require.NoError(t, os.Chmod(source, c.mode))
			setACL(t, source)
			before, access := tree(t, dir), accessOf(t, source)
			r := Registries{Dirs: []string{dir}}
			change := enable(t, r, suse, localregistry.Fallback)
			enable(t, r, suse, localregistry.Gate)
			assert.Equal(t, access, accessOf(t, change.File))
			disable(t, r, suse)
			assert.Equal(t, before, tree(t, dir))
			assert.Equal(t, access, accessOf(t, source))
		})
	}
}

// A directory that hides its file is copied with its permissions.
func TestDirectoryOfACopyHasThePermissionsOfItsSource(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{"_default/hosts.toml": secretHosts})
	require.NoError(t, os.Chmod(filepath.Join(dir, "_default"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(dir, "_default"), 0, 42))
	enable(t, Registries{Dirs: []string{dir}}, suse, localregistry.Fallback)
	info, err := os.Stat(filepath.Join(dir, suse))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	assert.Equal(t, uint32(42), info.Sys().(*syscall.Stat_t).Gid)
}

// A copy that an earlier version made world-readable, or a source that was restricted since: enable corrects the copy,
// and show reports it before.
func TestPermissionsOfACopyAreCorrected(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{"_default/hosts.toml": secretHosts})
	r := Registries{Dirs: []string{dir}}
	change := enable(t, r, suse, localregistry.Fallback)
	source := filepath.Join(dir, "_default", hostsTOML)
	require.NoError(t, os.Chmod(source, 0o600))
	require.NoError(t, os.Chmod(change.File, 0o644))
	of, err := r.Of(t.Context(), suse)
	require.NoError(t, err)
	assert.True(t, of.Outdated)
	again, err := r.Enable(t.Context(), suse, localregistry.Fallback)
	require.NoError(t, err)
	require.False(t, again.IsNone())
	assert.Contains(t, printed(t, again), "gets mode 0600 and owner 0:0")
	require.NoError(t, again.Write())
	assert.Equal(t, accessOf(t, source), accessOf(t, change.File))
}

type access struct {
	mode     fs.FileMode
	uid, gid uint32
	acl      string
}

func accessOf(t *testing.T, path string) access {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	value := make([]byte, 4096)
	n, err := unix.Getxattr(path, "system.posix_acl_access", value)
	if err != nil {
		n = 0
	}
	return access{info.Mode().Perm(), stat.Uid, stat.Gid, string(value[:n])}
}

// setACL lets user 42 read a file, in the format of posix_acl_xattr.h; the mask is the mode's group part.
func setACL(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	part := func(shift int) byte { return byte(info.Mode().Perm() >> shift & 7) }
	entry := func(tag, perm byte, id ...byte) []byte {
		if id == nil {
			id = []byte{255, 255, 255, 255}
		}
		return append([]byte{tag, 0, perm, 0}, id...)
	}
	list := []byte{2, 0, 0, 0}
	for _, e := range [][]byte{
		entry(1, part(6)), entry(2, 4, 42, 0, 0, 0), entry(4, part(3)), entry(16, part(3)), entry(32, part(0)),
	} {
		list = append(list, e...)
	}
	require.NoError(t, unix.Setxattr(path, "system.posix_acl_access", list, 0))
}

// The next run for a registry removes the remains of a killed one, which containerd does not read. A file of a person
// stays.
func TestTheNextRunCleansUp(t *testing.T) {
	t.Parallel()
	left := "." + hostsTOML + ".image-update-agent-0123456789abcdef"
	dir := certsD(t, map[string]string{
		"ghcr.io/hosts.toml": "# mine\n", "ghcr.io/" + left: secretHosts,
		hiddenName(suse) + "/" + left: secretHosts, hiddenName(suse) + "/hosts.toml": "half",
	})
	r := Registries{Dirs: []string{dir}}
	assert.Equal(t, []string{"https://registry.suse.com"}, order(t, r, suse))
	for _, registry := range []string{"ghcr.io", suse} {
		enable(t, r, registry, localregistry.Fallback)
		disable(t, r, registry)
	}
	got := tree(t, dir)
	assert.Len(t, got, 2, "%v", got)
	assert.Contains(t, got, "ghcr.io/hosts.toml")

	for _, name := range []string{"README", "ca.crt"} {
		dir := certsD(t, map[string]string{hiddenName(suse) + "/" + name: "", hiddenName(suse) + "/hosts.toml": "half"})
		before := tree(t, dir)
		c, err := Registries{Dirs: []string{dir}}.Enable(t.Context(), suse, localregistry.Fallback)
		require.NoError(t, err)
		err = c.Write()
		require.ErrorIs(t, err, release.ErrHeld)
		require.ErrorContains(t, err, "rename the file")
		assert.Equal(t, before, tree(t, dir))
	}
}

// A directory created by another process between reading and writing must not be removed.
func TestNewDirectoryIsAConflict(t *testing.T) {
	t.Parallel()
	dir := certsD(t, nil)
	c, err := Registries{Dirs: []string{dir}}.Enable(t.Context(), suse, localregistry.Fallback)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, suse), 0o755))
	require.ErrorIs(t, c.Write(), nodefile.ErrConflict)
	assert.Equal(t, map[string]string{suse: "drwxr-xr-x"}, tree(t, dir))
}
