// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/introspection/v1"
	containerd "github.com/containerd/containerd/api/services/version/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// running is a containerd that says what it is.
type running struct {
	containerd.UnimplementedVersionServer
	introspection.UnimplementedIntrospectionServer

	version, configPath string
}

func (r running) Version(context.Context, *emptypb.Empty) (*containerd.VersionResponse, error) {
	return &containerd.VersionResponse{Version: r.version}, nil
}

func (r running) Plugins(context.Context, *introspection.PluginsRequest) (*introspection.PluginsResponse, error) {
	images := introspection.Plugin{Type: "io.containerd.cri.v1", ID: "images"}
	if r.configPath != "" {
		images.Exports = map[string]string{"RegistryConfigPath": r.configPath}
	}
	return &introspection.PluginsResponse{Plugins: []*introspection.Plugin{&images}}, nil
}

// What enable writes has to be what the running containerd reads.
func TestEnableComparesWithTheRunningContainerd(t *testing.T) {
	const one = "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/etc/containerd/certs.d'\n"
	for name, c := range map[string]struct {
		is     running
		config string // containerd's
		ours   string // the agent's
		code   int
		said   string
	}{
		"the same":              {running{version: "v2.4.2", configPath: "/etc/containerd/certs.d"}, one, "", exitDone, "next: "},
		"not restarted since":   {running{version: "v2.4.2", configPath: "/old"}, one, "", exitHeld, `runs with config_path "/old", but its configuration has`},
		"another than our file": {running{version: "v2.4.2", configPath: "/k3s/certs.d"}, "", "containerd: {certsD: /etc/containerd/certs.d}\n", exitHeld, "set containerd.certsD to the same path"},
		"it does not say":       {running{version: "v2.1.9"}, one, "", exitDone, "next: "},
		"a list":                {running{version: "v2.1.9"}, strings.Replace(one, "certs.d", "certs.d:/b", 1), "", exitHeld, "reads as the name of a single directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, err := os.MkdirTemp("", "iua") //nolint:usetesting // the path of a socket is short
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
			for file, text := range map[string]string{
				"etc/containerd/config.toml": c.config, "etc/image-update-agent/config.yaml": c.ours, "run/containerd/.keep": "",
			} {
				require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(root, "run/containerd/containerd.sock"))
			require.NoError(t, err)
			server := grpc.NewServer()
			containerd.RegisterVersionServer(server, c.is)
			introspection.RegisterIntrospectionServer(server, c.is)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)
			var out, said bytes.Buffer
			code := execute(t.Context(), []string{"local-registry", "enable", "registry.suse.com", "--gate", "--write", "--root", root},
				streams{in: strings.NewReader(""), out: &out, err: &said})
			assert.Equal(t, c.code, code, said.String())
			assert.Contains(t, said.String(), c.said)
			_, err = os.Stat(filepath.Join(root, "etc/containerd/certs.d/registry.suse.com/hosts.toml"))
			assert.Equal(t, c.code == exitDone, err == nil, "%v", err)
			_, err = os.Stat(filepath.Join(root, "var/lib/image-update-agent/local-registry-wanted.json"))
			assert.Equal(t, c.code == exitDone, err == nil, "%v", err)
		})
	}
}
