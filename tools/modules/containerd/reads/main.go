// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
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
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/tools/modules/reads"
)

func main() {
	log.L.Logger.SetOutput(io.Discard)
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
