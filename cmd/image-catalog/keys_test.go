// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
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
	s.ends(exitUsage, "the variable NO_SUCH_KEY is not set", "refresh", "stage", "--key", "env://NO_SUCH_KEY")

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

	prod := filepath.Join(t.TempDir(), "prod")
	t.Run("encrypted", func(t *testing.T) {
		t.Setenv(passwordVariable, "secret")
		_, errs, code := run(t, "keygen", prod)
		require.Zero(t, code, errs)
		s.does("init", "prod", "--key", prod+".key")
		t.Setenv(passwordVariable, "wrong")
		s.ends(exitFailed, "", "refresh", "prod", "--expires", "30d", "--key", prod+".key")
	})
	s.ends(exitFailed, "no terminal to ask for a password", "refresh", "prod", "--expires", "30d", "--key", prod+".key")
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

// sign signs a file with the key of another one, as openssl does.
func sign(t *testing.T, keyFile, file string) []byte {
	t.Helper()
	private, err := os.ReadFile(keyFile)
	require.NoError(t, err)
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(private, nil)
	require.NoError(t, err)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	sig, err := signer.SignMessage(bytes.NewReader(text))
	require.NoError(t, err)
	return sig
}

// A publisher signs no version that it would itself refuse: nodes would refuse it, too, and nobody could build on it.
func TestRequireIsAlsoForTheNextVersion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, name := range []string{one, two} {
		_, errs, code := run(t, "keygen", name)
		require.Zero(t, code, errs)
	}
	both := []string{"--require", "2", "--trust", one + ".pub", "--trust", two + ".pub"}
	s.does("init", "prod", "--key", one+".key", "--key", two+".key")
	for _, keys := range [][]string{{"--key", one + ".key"}, {"--key", one + ".key", "--key", one + ".key"}} {
		for _, verb := range [][]string{{"init", "new"}, {"refresh", "prod", "--expires", "9d"}} {
			s.ends(exitUsage, "require: too few keys sign the next version: 1, want 2: use --key for each, or --out DIR\n", slices.Concat(verb, both, keys)...)
		}
	}
	out := s.does(append([]string{"list"}, both...)...)
	assert.Regexp(t, `(?m)^prod +1 `, out, "nothing was published")
	assert.NotContains(t, out, "new")
	s.does(slices.Concat([]string{"refresh", "prod", "--expires", "9d", "--key", one + ".key", "--key", two + ".key"}, both)...)

	signed := filepath.Join(dir, "signed")
	s.does(slices.Concat([]string{"refresh", "prod", "--expires", "8d", "--out", signed}, both)...)
	sig := filepath.Join(dir, "one.sig")
	require.NoError(t, os.WriteFile(sig, sign(t, one+".key", filepath.Join(signed, publish.PayloadFile)), 0o600))
	_, errs, code := s.run(slices.Concat([]string{"publish", signed, "--signature", sig}, both)...)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "too few keys signed it: 1, want 2")
	assert.Contains(t, errs, "hint: use --signature FILE for each signature, and --trust FILE for each key\n")
}

// The keys of stage do not count for prod: who uses them as before is told how.
func TestTrustNamesTheKeysOfFrom(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	for _, name := range []string{"ci", "prod"} {
		_, errs, code := run(t, "keygen", filepath.Join(dir, name))
		require.Zero(t, code, errs)
	}
	ci, prod := filepath.Join(dir, "ci"), filepath.Join(dir, "prod")
	s.push("velum", "4.0.0-rev1-build1.1")
	s.push("evil", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--key", ci+".key")
	s.does("init", "prod", "--key", prod+".key")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1", "--key", ci+".key")
	out := filepath.Join(dir, "out")
	s.ends(exitUsage, "--trust FILE names the keys of stage only; the keys of prod are missing: use --trust prod=FILE for them", "promote", "stage", "prod", "velum", "--out", out, "--trust", ci+".pub", "--trust", prod+".pub")
	s.ends(exitUsage, "the keys of stage are missing: use --trust FILE for them", "promote", "stage", "prod", "velum", "--out", out, "--trust", "prod="+prod+".pub")
	s.does("promote", "stage", "prod", "velum", "--out", out, "--trust", ci+".pub", "--trust", "prod="+prod+".pub")
	text, errs, code := run(t, "publish", out, "--dry-run")
	require.Zero(t, code, errs)
	assert.Regexp(t, `\+ \S+/velum:4.0.0-rev1-build1.1`, text)
	assert.Regexp(t, `\* also in this version: .* promoted or steered \S+/velum:4.0.0-rev1-build1.1 at `, text, "what they sign")

	// Who has CI's key brings nothing into prod.
	s.does("add", "prod", "HOST/evil:4.0.0-rev1-build1.1", "--key", ci+".key", "--trust", prod+".pub")
	_, errs, code = s.run("promote", "stage", "prod", "velum", "--key", prod+".key", "--trust", ci+".pub")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "prod: no valid signature")
	assert.Contains(t, errs, "hint: version 1 is the newest one that your keys signed: --base 1 builds on it")
	s.does("promote", "stage", "prod", "velum", "--key", prod+".key", "--trust", ci+".pub", "--base", "1")
	listed := s.does("inspect", "prod", "--trust", prod+".pub")
	assert.Contains(t, listed, "HOST/velum")
	assert.NotContains(t, listed, "HOST/evil")

	s.ends(exitUsage, "--require -1: want at least 1", "refresh", "prod", "--key", prod+".key", "--require", "-1")
}

// A pipeline's variable of another CI system is not believed.
func TestWhoPublishesIsWhomTheRunningSystemNames(t *testing.T) {
	for _, name := range []string{
		"GITLAB_CI", "CI_JOB_URL", "GITLAB_USER_LOGIN", "GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_ACTOR", "JENKINS_URL", "BUILD_URL", "BUILD_USER",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("USER", "root")
	assert.Equal(t, "root", publisherName())
	assert.Empty(t, runURL())
	t.Setenv("BUILD_URL", "https://anna:s3cret@jenkins.example.com/job/7/?token=1#top")
	assert.Equal(t, "https://jenkins.example.com/job/7/", runURL())
	t.Setenv("BUILD_URL", "https://jenkins.example.com:port/")
	assert.Empty(t, runURL())
	t.Setenv("GITHUB_ACTOR", "mallory")
	t.Setenv("GITHUB_SERVER_URL", "https://mallory.example.com")
	assert.Equal(t, "mallory", publisherName())
	t.Setenv("GITLAB_USER_LOGIN", "anna")
	t.Setenv("CI_JOB_URL", "https://gitlab.example.com/-/jobs/7")
	assert.Equal(t, "anna", publisherName())
	assert.Equal(t, "https://gitlab.example.com/-/jobs/7", runURL())
}
