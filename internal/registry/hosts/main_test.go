// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = registrytest.Secret

var (
	put         = registrytest.Put
	text        = registrytest.Text
	environ     = registrytest.Environ
	authJSONOf  = registrytest.AuthJSON
	encodedAuth = registrytest.EncodedAuth
	certificate = registrytest.Certificate
)

// kubeletFiles are kubelet's files with logins.
var kubeletFiles = platform.Detect("").Logins

// guardedCredentials are logins with their guard.
type guardedCredentials struct {
	*Credentials
	guard *registrytest.Guard
}

func newCredentials(t testing.TB, o CredentialOptions) guardedCredentials {
	t.Helper()
	g := registrytest.NewGuard(t, o.Log)
	o.Log, o.Kubelet = g.Log, kubeletFiles
	return guardedCredentials{NewCredentials(o), g}
}

func (c guardedCredentials) For(host, repository string) (Login, error) {
	login, err := c.Credentials.For(host, repository)
	c.guard.Learn("login", login.Secret)
	if err != nil {
		c.guard.Answered(nil, err)
	}
	return login, err
}

// untouched is a Client that keeps the hosts as containerd's parser returns them.
type untouched struct{}

func (untouched) UpdateClient(*http.Client) error { return nil }
func (untouched) Authorize([]docker.RegistryHost) {}
func (untouched) Roots() *x509.CertPool           { return nil }

// No test reads logins without the guard.
func TestEveryTestHasItsGuard(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	require.Greater(t, len(files), 5)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, file == "main_test.go", strings.Contains(string(data), "NewCredentials("), "%s: want newCredentials", file)
	}
}
