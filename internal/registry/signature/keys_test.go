// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1"
	"crypto/sha256"
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// told returns a verifier for a directory, and its log.
func told(dirs ...string) (*Verifier, *bytes.Buffer) {
	logged := new(bytes.Buffer)
	return New(Options{Dirs: dirs, Log: slog.New(slog.NewTextHandler(logged, nil))}), logged
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

// An added key counts from the next verification; a removed one no longer counts; a changed file is read again.
func TestKeysChangeWhileRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v, logged := told(dir)
	first, second := newSigner(t), newSigner(t)
	s := unsigned()
	payload := payloadFor(s.Index, s.Repository)
	s.simple(t, s.Index, s.layer(payload, second.sign(t, payload)))

	_, err := s.verify(t, v)
	require.ErrorIs(t, err, ErrNoKeys)
	require.NotErrorIs(t, err, ErrUnsigned)
	require.ErrorContains(t, err, "no valid *.pem file in "+dir)
	assert.Empty(t, s.asked, "without keys there is nothing to ask for")

	write(t, filepath.Join(dir, "a.pem"), first.pem(t))
	_, err = s.verify(t, v)
	require.ErrorIs(t, err, ErrWrong)
	before, err := v.Keys(t.Context())
	require.NoError(t, err)
	assert.Len(t, before, 1)

	write(t, filepath.Join(dir, "b.pem"), second.pem(t))
	got, err := s.verify(t, v)
	require.NoError(t, err)
	both, err := v.Keys(t.Context())
	require.NoError(t, err)
	assert.Len(t, both, 2)
	assert.IsIncreasing(t, both)
	assert.NotSubset(t, before, got.Keys)
	assert.Subset(t, both, got.Keys)

	require.NoError(t, os.Remove(filepath.Join(dir, "b.pem")))
	_, err = s.verify(t, v)
	require.ErrorIs(t, err, ErrWrong)

	// The same name, size and time of modification.
	info, err := os.Stat(filepath.Join(dir, "a.pem"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the clock of the file system may stand still for some milliseconds
		write(t, filepath.Join(dir, "a.pem"), second.pem(t))
		assert.NoError(t, os.Chtimes(filepath.Join(dir, "a.pem"), info.ModTime(), info.ModTime()))
		is, err := os.Stat(filepath.Join(dir, "a.pem"))
		return assert.NoError(t, err) && nodefile.Stamp(is) != nodefile.Stamp(info)
	}, time.Minute, time.Millisecond)
	_, err = s.verify(t, v)
	require.NoError(t, err)

	loads := strings.Count(logged.String(), "signature key loaded")
	for range 3 {
		_, err = s.verify(t, v)
		require.NoError(t, err)
	}
	assert.Equal(t, loads, strings.Count(logged.String(), "signature key loaded"), "told once for each reading")
	assert.Equal(t, 5, strings.Count(logged.String(), "signature verified"))
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "signature key loaded") {
			assert.Regexp(t, `file=`+dir+`/[ab]\.pem kind="ECDSA P-256" key=sha256:[0-9a-f]{64}\n$`, line)
		}
		if strings.Contains(line, "signature verified") {
			assert.Contains(t, line, " key="+got.Keys[0])
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "rsa4096.pem"))
	require.NoError(t, err)
	block, _ := pem.Decode(data)
	sum := sha256.Sum256(block.Bytes)
	k, err := parseKey(data)
	require.NoError(t, err)
	assert.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), k.fingerprint)
	for name, kind := range map[string]string{"rsa4096": "RSA 4096", "p384": "ECDSA P-384", "ed25519": "Ed25519"} {
		assert.Equal(t, kind, ringOf(t, name)[0].kind)
	}
}

// Other files in the directory do not affect the keys.
func TestBrokenKeys(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	good := by.pem(t)
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	public := func(key any) []byte {
		der, err := x509.MarshalPKIXPublicKey(key)
		require.NoError(t, err)
		return block("PUBLIC KEY", der)
	}
	private, err := x509.MarshalPKCS8PrivateKey(by.private)
	require.NoError(t, err)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	odd, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		data  []byte
		cause string
	}{
		"empty":       {nil, "no PEM"},
		"text":        {[]byte("key"), "no PEM"},
		"cut off":     {good[:len(good)-10], "no PEM"},
		"private":     {block("PRIVATE KEY", private), "PRIVATE KEY"},
		"certificate": {block("CERTIFICATE", []byte("x")), "CERTIFICATE"},
		"no DER":      {block("PUBLIC KEY", []byte("x")), "asn1"},
		"two":         {append(append([]byte{}, good...), good...), "more than one"},
		"RSA 1024":    {public(&small.PublicKey), "RSA 1024: "},
		"P-224":       {public(&odd.PublicKey), "ECDSA P-224: "},
		"large":       {append(append([]byte{}, good...), bytes.Repeat([]byte("\n"), maxKeyFile)...), "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			v, logged := told(dir)
			write(t, filepath.Join(dir, "a.pem"), c.data)
			_, err := v.Keys(t.Context())
			require.ErrorIs(t, err, ErrNoKeys)
			assert.Equal(t, 1, strings.Count(logged.String(), "level=WARN"))
			assert.Contains(t, logged.String(), c.cause)
			write(t, filepath.Join(dir, "b.pem"), good)
			keys, err := v.Keys(t.Context())
			require.NoError(t, err)
			assert.Len(t, keys, 1)
		})
	}
}

func TestOnlyRegularPEMFilesCount(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	by := newSigner(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.pem"), 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo.pem"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.pem")))
	write(t, filepath.Join(dir, "key.asc"), by.pem(t))
	v, logged := told(filepath.Join(dir, "missing"), dir, elsewhere)
	_, err := v.Keys(t.Context())
	require.ErrorIs(t, err, ErrNoKeys)
	assert.Equal(t, 4, strings.Count(logged.String(), "level=WARN"), logged)
	for _, cause := range []string{"missing: no such file", "fifo.pem error=\"not a regular file", "dir.pem error=\"not a regular file", "dangling.pem"} {
		assert.Contains(t, logged.String(), cause)
	}
	_, err = v.Keys(t.Context())
	require.ErrorIs(t, err, ErrNoKeys)
	assert.Equal(t, 4, strings.Count(logged.String(), "level=WARN"), "told once")

	// root's symlink counts as a file; its target is watched.
	target := filepath.Join(elsewhere, "target")
	write(t, target, []byte("nothing yet"))
	require.NoError(t, os.Symlink(target, filepath.Join(elsewhere, "link.pem")))
	_, err = v.Keys(t.Context())
	require.ErrorIs(t, err, ErrNoKeys)
	write(t, target, by.pem(t))
	keys, err := v.Keys(t.Context())
	require.NoError(t, err)
	assert.Len(t, keys, 1)
}

// A user who can write a key file could decide which images run.
func TestKeysOfOthersDoNotCount(t *testing.T) {
	t.Parallel()
	require.Zero(t, os.Geteuid(), "files are given to others")
	file := filepath.Join(t.TempDir(), "key.pem")
	write(t, file, newSigner(t).pem(t))
	v, logged := told(filepath.Dir(file))
	for _, is := range []struct {
		mode os.FileMode
		uid  int
		want string // empty: it counts
	}{
		{0o644, 0, ""},
		{0o664, 0, "mode 0664: others may write"},
		{0o646, 0, "mode 0646: others may write"},
		{0o600, 4711, "owned by user 4711, want root"},
		{0o600, 0, ""},
	} {
		require.NoError(t, os.Chmod(file, is.mode))
		require.NoError(t, os.Chown(file, is.uid, 0))
		logged.Reset()
		keys, err := v.Keys(t.Context())
		if is.want == "" {
			require.NoError(t, err)
			assert.Len(t, keys, 1)
			continue
		}
		require.ErrorIs(t, err, ErrNoKeys)
		assert.Contains(t, logged.String(), is.want)
	}
}

func TestKeyFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v, logged := told(dir)
	same := newSigner(t).pem(t)
	for i := range maxKeyFiles {
		write(t, filepath.Join(dir, fmt.Sprintf("%03d.pem", i)), same)
	}
	keys, err := v.Keys(t.Context())
	require.NoError(t, err)
	assert.Len(t, keys, 1, "one key, however often")
	assert.NotContains(t, logged.String(), "level=WARN")
	write(t, filepath.Join(dir, "999.pem"), newSigner(t).pem(t))
	keys, err = v.Keys(t.Context())
	require.NoError(t, err)
	assert.Len(t, keys, 1)
	assert.Contains(t, logged.String(), "too many files")
}

// Concurrent verifications while keys change, for the race detector.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v, _ := told(dir)
	by := newSigner(t)
	write(t, filepath.Join(dir, "a.pem"), by.pem(t))
	s := unsigned()
	payload := payloadFor(s.Index, s.Repository)
	s.simple(t, s.Index, s.layer(payload, by.sign(t, payload)))
	other := newSigner(t).pem(t)
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for j := range 20 {
				write(t, filepath.Join(dir, fmt.Sprintf("%d-%d.pem", i, j%3)), other)
				_, err := s.verify(t, v)
				assert.NoError(t, err)
			}
		})
	}
	wait.Wait()
}

// Earlier versions of cosign signed with SHA-256 for every curve.
func TestCurvesAndHashes(t *testing.T) {
	t.Parallel()
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
		require.NoError(t, err)
		k, err := newKey(der)
		require.NoError(t, err)
		for hash, valid := range map[crypto.Hash]bool{
			crypto.SHA256: true, crypto.SHA384: curve == elliptic.P384(), crypto.SHA512: curve == elliptic.P521(), crypto.SHA1: false,
		} {
			h := hash.New()
			h.Write([]byte("message"))
			sig, err := ecdsa.SignASN1(rand.Reader, private, h.Sum(nil))
			require.NoError(t, err)
			_, err = ring{k}.verify([]byte("message"), sig)
			assert.Equal(t, valid, err == nil, "%s %s", k.kind, hash)
		}
	}
}

// RSA-PSS is not supported.
func TestNoPSS(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	k, err := newKey(der)
	require.NoError(t, err)
	sum := sha256.Sum256([]byte("message"))
	sig, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, sum[:])
	require.NoError(t, err)
	_, err = ring{k}.verify([]byte("message"), sig)
	require.NoError(t, err)
	sig, err = rsa.SignPSS(rand.Reader, private, crypto.SHA256, sum[:], nil)
	require.NoError(t, err)
	_, err = ring{k}.verify([]byte("message"), sig)
	require.ErrorIs(t, err, errNoKeyFits)
}

func given(t *testing.T, names ...string) *Verifier {
	t.Helper()
	var pems [][]byte
	for _, name := range names {
		data, err := os.ReadFile("testdata/" + name + ".pem")
		require.NoError(t, err)
		pems = append(pems, data)
	}
	v, err := WithKeys(1, pems...)
	require.NoError(t, err)
	return v
}

func TestVerifyWithGivenKeys(t *testing.T) {
	t.Parallel()
	s := fixture(t, "cosign2-p256")
	got, err := s.verify(t, given(t, "other", "p256"))
	require.NoError(t, err)
	assert.Equal(t, s.Index, got.Signed)
	_, err = s.verify(t, given(t, "other"))
	require.ErrorIs(t, err, ErrWrong)
	_, err = WithKeys(1)
	require.ErrorIs(t, err, ErrNoKeys)
	_, err = WithKeys(1, []byte("no key"))
	require.Error(t, err)
}

func TestVerifyBytes(t *testing.T) {
	t.Parallel()
	payload, encoded := stolen(t, fixture(t, "cosign2-p256"))
	by, err := given(t, "p256").VerifyBytes(t.Context(), []byte(payload), encoded)
	require.NoError(t, err)
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", by)
	for _, v := range []struct {
		key, payload, encoded string
	}{{"other", payload, encoded}, {"p256", payload + " ", encoded}, {"p256", payload, encoded[4:]}, {"p256", payload, "?"}} {
		_, err = given(t, v.key).VerifyBytes(t.Context(), []byte(v.payload), v.encoded)
		require.ErrorIs(t, err, ErrWrong)
	}
}
