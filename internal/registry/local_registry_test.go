// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// ownFirst and ownLast return hosts.toml files of a namespace with the node's local registry.
func ownFirst(host string) string {
	return "server = \"http://" + host + "\"\n[host.\"" + localregistry.URL + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
}

func ownLast(host string) string {
	return "server = \"" + localregistry.URL + "\"\ncapabilities = [\"pull\", \"resolve\"]\n" +
		"[host.\"http://" + host + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
}

// The answers of the local registry come from the agent, so the agent does not ask it.
func TestLocalRegistryIsNeverAsked(t *testing.T) {
	t.Parallel()
	for at, hostsTOML := range map[localregistry.Position]func(string) string{localregistry.Gate: ownFirst, localregistry.Fallback: ownLast} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			tagged := f.image(t, "linux", "amd64", nil)
			f.tag("1", tagged)
			r, rec := newRegistry(t, certsD(t, f.host(), hostsTOML(f.host())))
			assert.Equal(t, at, r.Position(f.host()))
			resolved, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			require.NoError(t, err)
			assert.Equal(t, f.host(), resolved.Host)
			_, err = r.Describe(t.Context(), f.repository(), resolved.Digest)
			require.NoError(t, err)
			f.Close()
			r.documents.clear()
			_, err = r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			require.Error(t, err)
			_, _, err = r.Manifest(t.Context(), f.repository(), resolved.Digest.String())
			require.Error(t, err)
			_, err = r.Tags(t.Context(), f.repository())
			require.Error(t, err)
			_, err = r.Referrers(t.Context(), f.repository(), resolved.Digest)
			require.Error(t, err)
			_, err = r.Locate(t.Context(), f.repository(), resolved.Digest)
			require.Error(t, err)
			body, err := r.Fetch(t.Context(), f.repository(), ocispec.Descriptor{Digest: digest.FromString("layer"), Size: 1})
			require.NoError(t, err)
			_, err = body.Read(make([]byte, 1))
			require.Error(t, err)
			for _, line := range rec.lines() {
				assert.NotContains(t, line, localregistry.Address+" ", "the host, not a port that begins like its own")
			}
			assert.NotEmpty(t, rec.lines())
		})
	}
}

// A change of hosts.toml counts at once.
func TestPositionFollowsHostsTOML(t *testing.T) {
	t.Parallel()
	const namespace = "registry.example.com"
	root := t.TempDir()
	r, _ := newRegistry(t, root)
	r.hosts.CheckEvery = hosts.CheckEvery // as in production: polls detect a change later
	assert.Equal(t, localregistry.Off, r.Position(namespace))
	for _, c := range []struct {
		text string
		want localregistry.Position
	}{
		{ownFirst(namespace), localregistry.Gate},
		{ownLast(namespace), localregistry.Fallback},
		{plainHTTP(namespace), localregistry.Off},
		{"[host.\"" + localregistry.URL + "\"]\n  capabilities = [\"pull\"]\n", localregistry.Off}, // kubelet's tags are not resolved there
		{"server = [\n", localregistry.Off},
	} {
		addNamespace(t, root, namespace, c.text)
		assert.Equal(t, c.want, r.Position(namespace), c.text)
	}
	require.NoError(t, os.Remove(filepath.Join(root, namespace, "hosts.toml")))
	assert.Equal(t, localregistry.Off, r.Position(namespace))
}

func TestPrivateNeedsALogin(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	login := hosts.Login{User: "u", Secret: secret}
	r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)), func(o *Options) {
		o.Credentials = func(string, string) (hosts.Login, error) { return login, nil }
	})
	_, known := r.Private(f.repository())
	assert.False(t, known)
	asked := func() (private bool) {
		t.Helper()
		_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		require.NoError(t, err)
		private, known := r.Private(f.repository())
		assert.True(t, known)
		return private
	}
	assert.False(t, asked(), "a login that nobody wanted is not shown")
	f.answer(basic)
	assert.True(t, asked())
	login = hosts.Login{}
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.Error(t, err)
	private, _ := r.Private(f.repository())
	assert.True(t, private, "no answer changes nothing")
	f.answer(nil)
	assert.False(t, asked())
}

// containerd before 2.3 waits forever for a host that accepted the request, so no later host helps.
func TestSilentHostsDifferFromAbsentOnes(t *testing.T) {
	t.Parallel()
	takes := slowHost(func(ctx context.Context, conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		<-ctx.Done()
	})
	for name, c := range map[string]struct {
		dial   func(context.Context, string, string) (net.Conn, error)
		silent bool
	}{
		"takes the request": {nil, true},
		"no connection":     {noConnection, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const namespace = "slow.example.com"
				r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
				r.client.Dial = c.dial
				if c.dial == nil {
					r.client.Dial = takes(t)
				}
				_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
				told, ok := errors.AsType[*release.SourceError](err)
				require.True(t, ok)
				assert.Equal(t, release.CauseTimeout, told.Cause, err)
				assert.Equal(t, c.silent, told.Silent, err)
				for !told.Unasked { // after some failures the host is in back-off, with the same cause
					_, err = r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
					told, ok = errors.AsType[*release.SourceError](err)
					require.True(t, ok)
				}
				assert.Equal(t, c.silent, told.Silent, err)
			})
		})
	}
}
