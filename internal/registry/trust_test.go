// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

const bundle = "etc/ssl/ca-bundle.pem"

// The next poll uses the result of an admin's `update-ca-certificates`, in both directions, and an empty bundle changes
// nothing.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	other, _, _ := certificate(t)
	host := startDistribution(t, cert, key)
	root := t.TempDir()
	logged := new(bytes.Buffer)
	trust := hosts.NewTrust(root, environ(), slog.New(slog.NewTextHandler(logged, nil)))
	r, _ := newRegistry(t, certsD(t, host, "server = \"https://"+host+"\"\n"), func(o *Options) { o.Roots = trust.Roots })
	poll := func() error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
		return err
	}
	trusted := func(err error) bool { return strings.Contains(err.Error(), "404") }

	require.ErrorContains(t, poll(), "unknown authority", "no bundle at all")
	put(t, root, bundle, text(t, other))
	require.ErrorContains(t, poll(), "unknown authority")
	put(t, root, bundle, text(t, other)+text(t, ca))
	require.True(t, trusted(poll()), "added in place")
	opened := r.Counts().Connections
	for range 4 {
		require.True(t, trusted(poll()), "unchanged")
	}
	assertKept(t, r, opened)

	put(t, root, bundle, "-----BEGIN CERTIFICATE-----\nMIIB")
	require.True(t, trusted(poll()), "torn: the last that was whole")
	require.NoError(t, os.Remove(filepath.Join(root, bundle)))
	require.True(t, trusted(poll()), "away")
	assert.Equal(t, 1, strings.Count(logged.String(), "cannot use certificate authorities"), logged)

	put(t, root, "var/lib/ca-certificates/new", text(t, other))
	require.NoError(t, os.Rename(filepath.Join(root, "var/lib/ca-certificates/new"), filepath.Join(root, "var/lib/ca-certificates/ca-bundle.pem")))
	require.ErrorContains(t, poll(), "unknown authority", "taken away: a kept connection does not count")
	require.NoError(t, os.Symlink("../../var/lib/ca-certificates/two.pem", filepath.Join(root, bundle)))
	put(t, root, "var/lib/ca-certificates/two.pem", text(t, ca))
	require.True(t, trusted(poll()), "behind a link")
}

// A ca of hosts.toml applies to its host, and is not added to the system's.
func TestAuthorityOfAHostStaysWithIt(t *testing.T) {
	t.Parallel()
	a, b := newTLSFake(t), newFake(t)
	ca, cert, key := certificate(t)
	host := startDistribution(t, cert, key)
	root := t.TempDir()
	put(t, root, bundle, text(t, a.ca(t)))
	trust := hosts.NewTrust(root, environ(), nil)
	certs := certsD(t, b.host(), "server = \"https://"+host+"\"\nca = \""+ca+"\"\n[host.\"https://"+host+"\"]\n")
	addNamespace(t, certs, host, "server = \"https://"+host+"\"\n")
	r, _ := newRegistry(t, certs, func(o *Options) { o.Roots = trust.Roots })
	_, err := r.Resolve(t.Context(), release.Reference{Repository: b.repository(), Tag: "1"})
	require.ErrorContains(t, err, "404", "with its ca")
	require.ErrorContains(t, err, "unknown authority", "the same host without")
	_, err = r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
	require.ErrorContains(t, err, "unknown authority")
}
