// SPDX-License-Identifier: Apache-2.0

// Command reads answers requests with the code of containerd 2: see package reads.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"slices"
	"unsafe"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	_ "github.com/containerd/containerd/v2/plugins/cri"        // registers its plugin, with the migration
	_ "github.com/containerd/containerd/v2/plugins/cri/images" // registers its plugin
	_ "github.com/containerd/containerd/v2/plugins/cri/runtime"
	_ "github.com/containerd/containerd/v2/plugins/transfer"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/tools/modules/reads"
)

const file = "/etc/containerd/config.toml"

func main() {
	log.L.Logger.SetOutput(io.Discard)
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

// checkLocalImagePullConfigs and validateImageConfig take an *ImageConfig of the CRI plugin.
//
//go:linkname checkLocalImagePullConfigs github.com/containerd/containerd/v2/internal/cri/config.CheckLocalImagePullConfigs
func checkLocalImagePullConfigs(ctx context.Context, c unsafe.Pointer)

//go:linkname validateImageConfig github.com/containerd/containerd/v2/internal/cri/config.ValidateImageConfig
func validateImageConfig(ctx context.Context, c unsafe.Pointer) ([]string, error)

//go:linkname parseAuth github.com/containerd/containerd/v2/internal/cri/server/images.ParseAuth
func parseAuth(auth *runtime.AuthConfig, host string) (user, secret string, err error)

// configured does the same as containerd at its start, and the plugins of images at theirs.
func configured(ctx context.Context, r reads.Request) (*reads.Config, error) {
	all := &srvconfig.Config{Version: version.ConfigVersion, Plugins: map[string]any{}} // the start of its command
	graph := registry.Graph(func(*plugin.Registration) bool { return false })
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		plugins := func() iter.Seq[plugin.Registration] { return slices.Values(graph) }
		if err := srvconfig.LoadConfigWithPlugins(ctx, file, plugins, all); err != nil {
			return nil, err
		}
	}
	var images struct {
		Registry struct {
			ConfigPath string         `json:"configPath"`
			Mirrors    map[string]any `json:"mirrors"`
			Configs    map[string]struct {
				Auth *auth `json:"auth"`
			} `json:"configs"`
		} `json:"registry"`
		UseLocalImagePull bool              `json:"useLocalImagePull"`
		Snapshotter       string            `json:"snapshotter"`
		PinnedImages      map[string]string `json:"pinned_images"`
	}
	var transfer struct {
		Unpacks int `json:"MaxConcurrentUnpacks"`
	}
	for _, p := range graph {
		var err error
		switch p.URI() {
		case "io.containerd.cri.v1.images":
			err = decoded(ctx, all, p, &images, func(made unsafe.Pointer) error {
				checkLocalImagePullConfigs(ctx, made)
				_, err := validateImageConfig(ctx, made)
				return err
			})
		case "io.containerd.transfer.v1.local":
			err = decoded(ctx, all, p, &transfer, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	return &reads.Config{
		ConfigPath: images.Registry.ConfigPath, Mirrors: len(images.Registry.Mirrors) > 0,
		ClientPull: images.UseLocalImagePull, Unpacks: transfer.Unpacks,
		Snapshotter: images.Snapshotter, Sandbox: images.PinnedImages["sandbox"],
		Logins: reads.LoginsOf(r.Logins, func(host string) (string, string, error) {
			return parseAuth(images.Registry.Configs[host].Auth.runtimes(), host)
		}),
	}, nil
}

// auth is the CRI plugin's AuthConfig.
type auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

// runtimes does the same as the CRI plugin's toRuntimeAuthConfig.
func (a *auth) runtimes() *runtime.AuthConfig {
	if a == nil {
		return nil
	}
	return &runtime.AuthConfig{
		Username: a.Username, Password: a.Password, Auth: a.Auth, IdentityToken: a.IdentityToken,
	}
}

// decoded merges the files' values into a copy of a plugin's default configuration, and decodes it into to.
func decoded(
	ctx context.Context, all *srvconfig.Config, p plugin.Registration, to any, check func(unsafe.Pointer) error,
) error {
	own := reflect.New(reflect.TypeOf(p.Config).Elem())
	if err := copied(own.Interface(), p.Config); err != nil {
		return err
	}
	if _, err := all.Decode(ctx, p.URI(), own.Interface()); err != nil {
		return err
	}
	if check != nil {
		if err := check(own.UnsafePointer()); err != nil {
			return err
		}
	}
	return copied(to, own.Interface())
}

func copied(to, from any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
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
