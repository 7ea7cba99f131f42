// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preview needs no containerd: it follows hosts.toml where only the running containerd knows whether it does.
func TestPreviewFollowsHostsTomlWithoutContainerd(t *testing.T) {
	t.Parallel()
	const table = "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\n"
	for name, config := range map[string]string{
		"no config_path":  "",
		"two directories": table + "config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n",
		"one directory":   table + "config_path = '/etc/containerd/certs.d'\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, host := t.TempDir(), haproxyRegistry(t, haproxyTags...)
			put := func(path, text string) string {
				path = filepath.Join(root, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
				return path
			}
			put("etc/containerd/config.toml", config)
			put("etc/containerd/certs.d/example.com/hosts.toml", "server = \"http://"+host+"\"\n")
			file := put("web.yaml", podWith("example.com/haproxy:3.0.5-alpine"))
			var o, e bytes.Buffer
			code := execute(t.Context(), []string{"preview", "--root", root, "--updates", "patch", file},
				streams{in: strings.NewReader(""), out: &o, err: &e})
			assert.Zero(t, code, "%s%s", &o, &e)
			assert.Contains(t, o.String(), "3.0.8-alpine")
		})
	}
}

// containerd asks the registry itself if it cannot parse hosts.toml, and preview says so.
func TestPreviewSaysThatHostsTomlIsNotParsed(t *testing.T) {
	t.Parallel()
	root, host := t.TempDir(), haproxyRegistry(t, haproxyTags...)
	hostsToml := filepath.Join(root, "etc/containerd/certs.d", host, "hosts.toml")
	file := filepath.Join(root, "web.yaml")
	for path, text := range map[string]string{
		filepath.Join(root, "etc/containerd/config.toml"): "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\n" +
			"config_path = '/etc/containerd/certs.d'\n",
		hostsToml: "s3cr3t = 1\ns3cr3t = 2\n", // a password as a key
		file:      podWith(host + "/haproxy:3.0.5-alpine"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	var o, e bytes.Buffer
	code := execute(t.Context(), []string{"preview", "--root", root, "--updates", "patch", "--output", "json", file},
		streams{in: strings.NewReader(""), out: &o, err: &e})
	assert.Zero(t, code, "%s%s", &o, &e)
	assert.Contains(t, o.String(), hostsToml+": not TOML as containerd reads it: line 2, column 1: ")
	assert.NotContains(t, o.String()+e.String(), "s3cr3t")
	assert.Contains(t, o.String(), ": containerd ignores the file and asks "+host+" itself")
}

// preview still says so if it cannot read which directories containerd follows.
func TestPreviewWithAnUnreadableConfigurationOfContainerd(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{
		"etc/containerd/config.toml":                    "version = \n",
		"etc/containerd/certs.d/example.com/hosts.toml": "server = \"http://127.0.0.1:1\"\n",
		"web.yaml": podWith("example.com/haproxy:3.0.5-alpine"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o644))
	}
	var o, e bytes.Buffer
	code := execute(t.Context(), []string{"preview", "--root", root, filepath.Join(root, "web.yaml")},
		streams{in: strings.NewReader(""), out: &o, err: &e})
	assert.Equal(t, 1, code)
	assert.Contains(t, o.String(), "cannot read the configuration of containerd")
}
