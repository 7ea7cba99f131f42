// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestBundleAtItsLimit(t *testing.T) {
	t.Parallel()
	ca, _, _ := certificate(t)
	root := t.TempDir()
	content := text(t, ca)
	put(t, root, bundle, content+strings.Repeat("\n", maxBundle-len(content)))
	assert.NotNil(t, NewTrust(root, environ(), nil).Roots())
	put(t, root, bundle, content+strings.Repeat("\n", maxBundle-len(content)+1))
	assert.Nil(t, NewTrust(root, environ(), nil).Roots())
}
