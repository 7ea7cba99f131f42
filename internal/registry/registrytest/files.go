// SPDX-License-Identifier: Apache-2.0

// Package registrytest is shared by the tests of registries: files of a node, certificates, and a guard that checks for
// leaked secrets.
package registrytest

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Environ returns a Getenv.
func Environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// Put writes a file below root, readable only by its owner.
func Put(t testing.TB, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// AuthJSON returns an auth.json with users by key, all with the secret.
func AuthJSON(users ...string) string {
	var entries []string
	for i := 0; i < len(users); i += 2 {
		entries = append(entries, fmt.Sprintf("%q: {%q: %q}", users[i], "auth", EncodedAuth(users[i+1], Secret)))
	}
	return `{"auths": {` + strings.Join(entries, ", ") + `}}`
}

// EncodedAuth returns the auth of an auth.json.
func EncodedAuth(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// Text returns the content of a file.
func Text(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
