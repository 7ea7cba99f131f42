// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Files of the node are read up to their maximum size, and rejected with one byte more.
func TestLimitsOfFiles(t *testing.T) {
	t.Parallel()
	far := &http.Request{URL: &url.URL{Scheme: "https", Host: "registry.suse.com"}}
	ca, _, _ := certificate(t)
	files := []struct {
		path, content string
		limit         int
		read          func(t *testing.T, root string) (used bool, err error)
		want          string // error
	}{
		{sysconfig, "PROXY_ENABLED=yes\nHTTPS_PROXY=http://proxy:1\n", maxProxyFile, func(_ *testing.T, root string) (bool, error) {
			proxy, err := NewProxies(root, environ()).For(far)
			return proxy != nil, err
		}, "too large"},
		{sccPath, "username=u\npassword=" + secret + "\n", maxSCCFile, func(t *testing.T, root string) (bool, error) {
			login, err := newCredentials(t, CredentialOptions{Root: root, Getenv: environ()}).For(sccHost, "app")
			return login.User != "", err
		}, "too large"},
		{"root/.docker/config.json", authJSONOf("reg", "u"), maxAuthFile, func(t *testing.T, root string) (bool, error) {
			login, err := newCredentials(t, CredentialOptions{Root: root, Getenv: environ()}).For("reg", "app")
			return login.User != "", err
		}, "too large"},
		{bundle, text(t, ca), maxBundle, func(_ *testing.T, root string) (bool, error) {
			return NewTrust(root, environ(), nil).Roots() != nil, nil
		}, ""},
	}
	for _, f := range files {
		for _, off := range []int{-1, 0, 1} {
			root := t.TempDir()
			put(t, root, f.path, f.content+strings.Repeat("\n", f.limit+off-len(f.content)))
			used, err := f.read(t, root)
			assert.Equal(t, off <= 0, used, "%s %+d", f.path, off)
			if off > 0 && f.want != "" {
				assert.ErrorContains(t, err, f.want, f.path)
			} else {
				assert.NoError(t, err, "%s %+d", f.path, off)
			}
		}
	}
}

const bundle = "etc/ssl/ca-bundle.pem"

func TestCertificateFileOfTheEnvironmentIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	ca, _, _ := certificate(t)
	other, _, _ := certificate(t)
	root := t.TempDir()
	put(t, root, bundle, text(t, other))
	put(t, root, "own.pem", text(t, ca))
	want, err := parseBundle([]byte(text(t, ca)))
	require.NoError(t, err)
	assert.True(t, want.Equal(NewTrust(root, environ("SSL_CERT_FILE", "/own.pem"), nil).Roots()))
	assert.Nil(t, NewTrust(root, environ("SSL_CERT_FILE", "/none.pem"), nil).Roots())
}
