// SPDX-License-Identifier: Apache-2.0

// Command reads answers requests with the code of containerd 1.7, or of 1.6 (go16.mod): see package reads.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/containerd/errdefs"
	criconfig "github.com/containerd/containerd/pkg/cri/config"
	"github.com/containerd/containerd/pkg/cri/server"
	"github.com/containerd/containerd/plugin"
	"github.com/containerd/containerd/remotes/docker"
	"github.com/containerd/containerd/remotes/docker/config"
	srvconfig "github.com/containerd/containerd/services/server/config"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/tools/modules/reads"
)

const file = "/etc/containerd/config.toml"

func main() {
	logrus.SetOutput(io.Discard)
	reads.Serve(answer)
}

func answer(ctx context.Context, r reads.Request) (a reads.Answer, err error) {
	switch {
	case r.Root != "":
		err = reads.In(r.Root, func() error {
			a.Config, err = configured(ctx, r)
			return err
		})
	case r.Pull != "":
		a.Pulled, err = pulled(ctx, r)
	default:
		a.Hosts, err = hosts(ctx, r)
	}
	return a, err
}

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

// registryHosts returns the hosts as the CRI plugin does (registryHosts, hostDirFromRoots).
func registryHosts(ctx context.Context, r reads.Request) docker.RegistryHosts {
	options := config.HostOptions{DefaultScheme: r.Scheme, HostDir: func(host string) (string, error) {
		for _, dir := range r.CertsDirs {
			found, err := config.HostDirFromRoot(dir)(host)
			if (err != nil && !errdefs.IsNotFound(err)) || found != "" {
				return found, err
			}
		}
		return "", errdefs.ErrNotFound
	}}
	if r.User != "" {
		options.Credentials = func(string) (string, string, error) { return r.User, r.Password, nil }
	}
	return config.ConfigureHosts(ctx, options)
}

func hosts(ctx context.Context, r reads.Request) ([]reads.Host, error) {
	found, err := registryHosts(ctx, r)(r.Namespace)
	if err != nil {
		return nil, err
	}
	all := []reads.Host{}
	for _, f := range found {
		h := reads.Host{
			Scheme: f.Scheme, Host: f.Host, Path: f.Path, Header: f.Header,
			Pull: f.Capabilities.Has(docker.HostCapabilityPull), Resolve: f.Capabilities.Has(docker.HostCapabilityResolve),
		}
		reads.Describe(&h, f.Client)
		all = append(all, h)
	}
	return all, nil
}

// pulled requests all parts of an image, as a pull does.
func pulled(ctx context.Context, r reads.Request) (*reads.Pulled, error) {
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: registryHosts(ctx, r)})
	name, desc, err := resolver.Resolve(ctx, r.Pull)
	if err != nil {
		return nil, err
	}
	p := &reads.Pulled{Digest: desc.Digest.String()}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return nil, err
	}
	manifest, err := fetch(func() (io.ReadCloser, error) { return fetcher.Fetch(ctx, desc) }, desc)
	if err != nil {
		p.Missing = fmt.Sprintf("%s: %v", desc.Digest, err)
		return p, nil
	}
	blobs, err := reads.Blobs(manifest)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		blob := ocispec.Descriptor{Digest: digest.Digest(b.Digest), Size: b.Size, MediaType: b.MediaType}
		if _, err := fetch(func() (io.ReadCloser, error) { return fetcher.Fetch(ctx, blob) }, blob); err != nil {
			p.Missing = fmt.Sprintf("%s: %v", b.Digest, err)
			return p, nil
		}
	}
	return p, nil
}

// fetch reads a blob completely, and verifies its digest, as the content store does.
func fetch(open func() (io.ReadCloser, error), desc ocispec.Descriptor) ([]byte, error) {
	body, err := open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err == nil && digest.FromBytes(data) != desc.Digest {
		err = fmt.Errorf("content has digest %s", digest.FromBytes(data))
	}
	return data, err
}
