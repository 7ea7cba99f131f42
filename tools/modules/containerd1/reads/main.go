// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"

	"github.com/containerd/containerd/errdefs"
	criconfig "github.com/containerd/containerd/pkg/cri/config"
	"github.com/containerd/containerd/pkg/cri/server"
	"github.com/containerd/containerd/plugin"
	"github.com/containerd/containerd/remotes/docker"
	"github.com/containerd/containerd/remotes/docker/config"
	srvconfig "github.com/containerd/containerd/services/server/config"
	"github.com/sirupsen/logrus"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/tools/modules/reads"
)

func main() {
	logrus.SetOutput(io.Discard)
	reads.Serve(answer)
}

type (
	hostsOf         = docker.RegistryHosts
	hostOptions     = config.HostOptions
	resolverOptions = docker.ResolverOptions
)

const (
	mayPull    = docker.HostCapabilityPull
	mayResolve = docker.HostCapabilityResolve
)

var (
	hostDirFromRoot = config.HostDirFromRoot
	configureHosts  = config.ConfigureHosts
	newResolver     = docker.NewResolver
	errNotFound     = errdefs.ErrNotFound
	isNotFound      = errdefs.IsNotFound
)

// configured does the same as containerd at its start, and the CRI plugin at its own.
func configured(ctx context.Context, r reads.Request) (*reads.Config, error) {
	all := &srvconfig.Config{Version: 1} // the start of its command
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		if err := srvconfig.LoadConfig(file, all); err != nil {
			return nil, err
		}
	}
	cri := criconfig.DefaultConfig()
	registration := &plugin.Registration{Type: plugin.GRPCPlugin, ID: "cri", Config: &cri}
	if _, err := all.Decode(registration); err != nil {
		return nil, err
	}
	if err := validated(ctx, &cri); err != nil {
		return nil, err
	}
	return &reads.Config{
		ConfigPath: cri.Registry.ConfigPath, Mirrors: len(cri.Registry.Mirrors) > 0, ClientPull: true,
		Snapshotter: cri.ContainerdConfig.Snapshotter, Sandbox: cri.SandboxImage,
		Logins: reads.LoginsOf(r.Logins, func(host string) (string, string, error) {
			return login(cri.Registry.Configs[host].Auth, host)
		}),
	}, nil
}

// login does the same as the CRI plugin for a pull without a login of its own (registryHosts, toRuntimeAuthConfig).
func login(auth *criconfig.AuthConfig, host string) (user, secret string, err error) {
	if auth == nil {
		return server.ParseAuth(nil, host)
	}
	return server.ParseAuth(&runtime.AuthConfig{
		Username: auth.Username, Password: auth.Password, Auth: auth.Auth, IdentityToken: auth.IdentityToken,
	}, host)
}

func validated(ctx context.Context, cri *criconfig.PluginConfig) error {
	_, err := criconfig.ValidatePluginConfig(ctx, cri)
	return err
}
