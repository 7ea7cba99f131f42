// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostsFiles are files below a directory of certs.d, and what becomes of them.
// CA is replaced by the path of a certificate.
var hostsFiles = map[string]struct {
	toml        string
	server      string
	table       bool
	authorities bool
	unparsed    string // part of the error
	err         string
}{
	"a mirror":             {toml: "server = \"https://a\"\n[host.\"https://m1\"]\n[host.\"https://m2\"]\n  capabilities = [\"pull\"]\n", server: "a", table: true},
	"a header of its own":  {toml: "[host.\"https://m1\"]\n[host.\"https://m1\".header]\nx = \"y\"\n", table: true},
	"a server only":        {toml: "server = \"https://m1:5000\"\n", server: "m1:5000"},
	"an empty table":       {toml: "server = \"https://m1\"\n[host]\n", server: "m1", table: true},
	"indented":             {toml: "  [ host.\"https://m1\" ]\n", table: true},
	"an inline table":      {toml: "host = {}\n", table: true},
	"a commented table":    {toml: "server = \"https://m1\"\n# [host]\n", server: "m1"},
	"another table":        {toml: "server = \"https://m1\"\n[header]\nhost2 = \"x\"\n", server: "m1"},
	"comments only":        {toml: "# server = \"https://m1\"\n"},
	"empty":                {},
	"a ca":                 {toml: "[host.\"https://m1\"]\nca = \"CA\"\n", table: true, authorities: true},
	"a ca of the server":   {toml: "server = \"https://m1\"\nca = [\"CA\"]\n", server: "m1", authorities: true},
	"plain http with a ca": {toml: "[host.\"http://m1:80\"]\nca = \"CA\"\n", table: true, authorities: true},
	"no toml":              {toml: "[host.\"https://m1\"\n", unparsed: "toml"},
	"unknown capability":   {toml: "[host.\"https://m1\"]\ncapabilities = [\"pul\"]\n", unparsed: "unknown capability pul"},
	"a type":               {toml: "server = 5\n", unparsed: "toml"},
	"a timeout":            {toml: "[host.\"https://m1\"]\ndial_timeout = \"soon\"\n", unparsed: "invalid duration"},
	"a url":                {toml: "[host.\"https://m1:port\"]\n", unparsed: "unable to parse server"},
	"a ca that is not":     {toml: "[host.\"https://m1\"]\nca = \"none.pem\"\n", err: "none.pem"},
	"no certificates":      {toml: "[host.\"https://m1\"]\nca = \"hosts.toml\"\n", err: "unable to load CA cert"},
}

func TestDirs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, _, _ := certificate(t)
	for name, c := range hostsFiles {
		put(t, dir, name+"/hosts.toml", strings.ReplaceAll(c.toml, "CA", ca))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "certificates only"), 0o755))
	got := Dirs(t.Context(), []string{filepath.Join(dir, "none"), dir})
	require.Len(t, got, len(hostsFiles))
	for _, d := range got {
		name := filepath.Base(d.Path)
		want := hostsFiles[name]
		assert.Equal(t, dir, filepath.Dir(d.Path))
		assert.Equal(t, want.server, d.Server, name)
		assert.Equal(t, want.table, d.HostTable, name)
		assert.Equal(t, want.authorities, d.Authorities, name)
		said(t, name, want.unparsed, d.Unparsed)
		said(t, name, want.err, d.Err)
	}
}

// said wants an error with that text; none for an empty one.
func said(t *testing.T, name, want string, err error) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err, name)
		return
	}
	assert.ErrorContains(t, err, want, name)
}
