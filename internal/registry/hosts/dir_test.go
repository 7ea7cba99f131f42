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

// hostsFiles are files below a directory of certs.d, and their results. CA is replaced by the path of a certificate.
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
	"no toml":              {toml: "[host.\"https://m1\"\n", unparsed: "not TOML as containerd reads it: line 1, column 19"},
	"unknown capability":   {toml: "[host.\"https://m1\"]\ncapabilities = [\"pul\"]\n", unparsed: "unknown capability: want pull"},
	"a type":               {toml: "server = 5\n", unparsed: "not TOML as containerd reads it: line 1"},
	"a timeout":            {toml: "[host.\"https://m1\"]\ndial_timeout = \"soon\"\n", unparsed: "dial_timeout: want a duration"},
	"a url":                {toml: "[host.\"https://m1:port\"]\n", unparsed: "a host, or the server, is not a URL"},
	"a ca that is not":     {toml: "[host.\"https://m1\"]\nca = \"none.pem\"\n", err: "none.pem"},
	"no certificates":      {toml: "[host.\"https://m1\"]\nca = \"hosts.toml\"\n", err: "hosts.toml: no certificates"},
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

// e2e/neighbours compares the hosts with those from the code of each containerd version.
func TestFilesInOtherContainerdVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]string{ // 1.6, 1.7, and the host that 2.x does not ask
		"server = 's.example'\n":                                                    {"[host] table", "", ""},
		"[host.'https://m']\ncapabilities = ['pull']\n":                             {"", "", ""},
		"[host.'https://m']\ncapabilities = ['Referrers']\n":                        {"capability referrers", "capability referrers", ""},
		"capabilities = ['referrers']\n[host]\n":                                    {"capability referrers", "capability referrers", ""},
		"[host.'https://m']\ndial_timeout = '3s'\n":                                 {"", "", ""},
		"[host.'https://m']\ndial_timeout = 'soon'\n":                               {"dial_timeout", "dial_timeout", ""},
		"[host]\n'https://m' = { capabilities = ['pull'] }\n":                       {"also asks https://m", "also asks https://m", "https://m"},
		"host.'https://m'.skip_verify = true\n[host.n]\n":                           {"also asks https://m", "also asks https://m", "https://m"},
		"[host.'https://m'.header]\nx = 'y'\n":                                      {"", "", ""},
		"[host.'https://[fd00::1]:5000']\n":                                         {"brackets in its name", "brackets in its name", ""},
		"[host.m]\nCapabilities = ['pull']\n":                                       {"Capabilities, which", "Capabilities, which", ""},
		"[host]\n'https://m'.client = [['a']]\n":                                    {"also asks https://m", "also asks https://m", "https://m"},
		"[host.n]\nheader = { host = 'x' }\n[host.n.more]\ncapabilities = [1, 2]\n": {"", "", ""},
	} {
		dir := t.TempDir()
		put(t, dir, "m.example/hosts.toml", text)
		d := Dirs(t.Context(), []string{dir})[0]
		assert.Equal(t, want[2], d.Unasked, text)
		assert.Empty(t, d.Otherwise("v2.4.2"), text)
		for n, version := range []string{"1.6.20~ds1", "v1.7.24"} {
			assert.Equal(t, want[n] == "", d.Otherwise(version) == "", text)
			assert.Contains(t, d.Otherwise(version), want[n], text)
		}
	}
}

// said asserts an error with that text; none for an empty one.
func said(t *testing.T, name, want string, err error) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err, name)
		return
	}
	assert.ErrorContains(t, err, want, name)
}

// As k3s and RKE2 write the rewrites of registries.yaml (HostsTomlTemplate in pkg/agent/templates of k3s).
func TestARewriteOfK3sIsSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[host.\"https://m.example/v2\"]\n  capabilities = [\"pull\", \"resolve\"]\n" +
			"  [host.\"https://m.example/v2\".rewrite]\n    \"^rancher/(.*)\" = \"mirrored/$1\"\n": "https://m.example/v2",
		"[host.\"https://m.example/v2\"]\n  [host.\"https://m.example/v2\".rewrite]\n": "",
		"[host.\"https://m.example/v2\"]\n":                                            "",
	} {
		dir := t.TempDir()
		put(t, dir, "docker.io/hosts.toml", text)
		assert.Equal(t, want, Dirs(t.Context(), []string{dir})[0].Rewritten, text)
	}
}

// containerd 2.3 got a limit for the wait for a header. Of an unknown version it is not known, and so not taken for granted.
func TestVersionsThatEndSilence(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"": false, "unknown": false, "1.6.20~ds1": false, "v1.7.35": false, "2.0.0": false, "v2.2.0": false, "v2.2.10+k3s1": false,
		"v2.3.0": true, "2.3.0-rc.1": true, "v2.4.2": true, "v2.10.0": true, "3.0.0": true,
	} {
		assert.Equal(t, want, EndsSilence(version), version)
	}
}
