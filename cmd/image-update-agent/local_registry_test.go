// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/services/introspection/v1"
	containerd "github.com/containerd/containerd/api/services/version/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// A wrong argument is the first and only thing that is said, and the right ones beside it are not carried out.
func TestRegistriesAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"enable", "disable"} {
		code, out, said := ends(t, "local-registry", verb, "registry.suse.com", "http://x", "--root", t.TempDir())
		assert.Equal(t, exitUsage, code, verb)
		assert.Regexp(t, `^image-update-agent: error: "http://x": no registry: want HOST or HOST:PORT\n.* hint: .*\n$`, said, verb)
		assert.Empty(t, out, verb)
	}
}

// People and scripts enable and disable the local registry at the same time. Each verb is carried out whole, and what is
// remembered is what the files say.
func TestEnableAndDisableAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	certs := filepath.Join(root, "etc/containerd/certs.d")
	require.NoError(t, os.MkdirAll(certs, 0o755))
	registries := registryhost.Registries{Dirs: []string{certs}}
	memory := registryhost.Memory{Dir: filepath.Join(root, "var/lib/image-update-agent"), Registries: registries}
	verb := func(args ...string) (int, string) {
		code, _, said := ends(t, append([]string{"local-registry", "--root", root}, args...)...)
		return code, said
	}
	var all sync.WaitGroup
	for n := range 12 {
		own, shared := fmt.Sprintf("r%d.example.com", n), fmt.Sprintf("shared%d.example.com", n%2)
		all.Go(func() {
			code, said := verb("enable", own, "--write")
			assert.Equal(t, exitDone, code, said)
		})
		all.Go(func() {
			args := []string{"enable", shared, "--write", "--gate"}
			if n%4 < 2 {
				args = []string{"disable", shared, "--write"}
			}
			code, said := verb(args...)
			assert.Contains(t, []int{exitDone, exitNothing}, code, said)
		})
	}
	all.Wait()
	wanted, err := memory.Wanted()
	require.NoError(t, err)
	remembered := map[string]string{}
	for _, w := range wanted {
		remembered[w.Registry] = string(w.Position)
	}
	enabled, err := registries.Enabled(t.Context())
	require.NoError(t, err)
	written := map[string]string{}
	for _, r := range enabled {
		written[r.Registry] = string(r.Position)
	}
	assert.Equal(t, written, remembered)
	assert.GreaterOrEqual(t, len(written), 12)
}

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
			put(t, root, map[string]string{"etc/containerd/config.toml": c.config, ourConfig: c.ours, "run/containerd/.keep": ""})
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(root, "run/containerd/containerd.sock"))
			require.NoError(t, err)
			server := grpc.NewServer()
			containerd.RegisterVersionServer(server, c.is)
			introspection.RegisterIntrospectionServer(server, c.is)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)
			code, _, said := ends(t, "local-registry", "enable", "registry.suse.com", "--gate", "--write", "--root", root)
			assert.Equal(t, c.code, code, said)
			assert.Contains(t, said, c.said)
			_, err = os.Stat(filepath.Join(root, "etc/containerd/certs.d/registry.suse.com/hosts.toml"))
			assert.Equal(t, c.code == exitDone, err == nil, "%v", err)
			_, err = os.Stat(filepath.Join(root, "var/lib/image-update-agent/local-registry-wanted.json"))
			assert.Equal(t, c.code == exitDone, err == nil, "%v", err)
		})
	}
}
