// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A key pair is made once, and signs a channel from a file or from a variable.
func TestKeygen(t *testing.T) {
	s := newShop(t)
	ci := filepath.Join(t.TempDir(), "ci")
	out, errs, code := run(t, "keygen", ci)
	require.Zero(t, code, errs)
	assert.Equal(t, "Wrote "+ci+".key: keep it secret, it signs channels.\nWrote "+ci+".pub: copy it to the nodes.\n", out)
	info, err := os.Stat(ci + ".key")
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	key, err := os.ReadFile(ci + ".key")
	require.NoError(t, err)
	t.Setenv("CATALOG_KEY", string(key))
	out = s.does("init", "stage", "--key", "env://CATALOG_KEY")
	assert.Contains(t, out, `
catalog:
  repository: HOST/catalog
  channel: stage
  keys: [/etc/image-update-agent/catalog-keys]

Copy the public key to /etc/image-update-agent/catalog-keys/stage.pem on these nodes.
`)
	assert.Contains(t, s.does("verify", "--trust", ci+".pub"), "no problems found")
	_, errs, code = s.run("refresh", "stage", "--key", "env://NO_SUCH_KEY")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "the variable NO_SUCH_KEY is not set")

	_, errs, code = run(t, "keygen", "")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, `NAME "": want the name of a file without its extension`)
	assert.NoFileExists(t, ".key")
	_, errs, code = run(t, "keygen", ci)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, ci+".key: file already exists")
	again, err := os.ReadFile(ci + ".key")
	require.NoError(t, err)
	assert.Equal(t, key, again, "it replaces no key")
	require.NoError(t, os.Remove(ci+".key"))
	_, _, code = run(t, "keygen", ci)
	assert.Equal(t, exitFailed, code, "the public key is there")
	assert.NoFileExists(t, ci+".key")

	t.Setenv(passwordVariable, "secret")
	prod := filepath.Join(t.TempDir(), "prod")
	_, errs, code = run(t, "keygen", prod)
	require.Zero(t, code, errs)
	s.does("init", "prod", "--key", prod+".key")
	t.Setenv(passwordVariable, "wrong")
	_, _, code = s.run("refresh", "prod", "--expires", "30d", "--key", prod+".key")
	assert.Equal(t, exitFailed, code, "the key is encrypted")
	assert.Contains(t, s.does("init", "test", "--unsigned"), "\n  channel: test\n  signatures: off\n")
}

// A key that could not be written must not be in the way of the next one.
func TestKeygenOnAFullDisk(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	require.NoError(t, syscall.Unshare(syscall.CLONE_NEWNS|syscall.CLONE_FS))
	require.NoError(t, syscall.Mount("none", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, 0)) })
	filler := filepath.Join(dir, "filler")
	pair := keyPair{Private: filepath.Join(dir, "ci.key"), Public: filepath.Join(dir, "ci.pub")}
	for _, left := range []int{0, 1} { // pages
		require.NoError(t, os.WriteFile(filler, make([]byte, 64<<10-left*os.Getpagesize()), 0o600))
		require.ErrorIs(t, writePair(pair, []byte("private"), []byte("public")), syscall.ENOSPC)
		assert.NoFileExists(t, pair.Private)
		assert.NoFileExists(t, pair.Public)
	}
	require.NoError(t, os.Remove(filler))
	assert.NoError(t, writePair(pair, []byte("private"), []byte("public")))
}
