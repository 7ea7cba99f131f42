// SPDX-License-Identifier: Apache-2.0

package story

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// A registry that a node asks through its local registry, its hosts.toml below the node's root, and an image in it.
const (
	LocalRegistryRegistry = "registry.example.com"
	LocalRegistryFile     = "etc/containerd/certs.d/" + LocalRegistryRegistry + "/hosts.toml"
	LocalRegistryImage    = LocalRegistryRegistry + "/demo/velum:4.0.0-rev1"
)

// LocalRegistryVerb runs a verb of the local registry that must exit with the code.
func LocalRegistryVerb(t *testing.T, n *node.Node, code int, args ...string) {
	t.Helper()
	r := n.Agent(append([]string{"local-registry"}, args...)...)
	require.Equal(t, code, r.Code, "%v: %s%s", args, r.Stdout, r.Stderr)
}

// EntryOf returns an entry of the table for a tag, with the registry's current digest.
func EntryOf(t *testing.T, r *node.Registry, repository, tag string) localregistry.Entry {
	t.Helper()
	ref, err := name.NewTag(r.Ref(repository)+":"+tag, name.Insecure)
	require.NoError(t, err)
	found, err := remote.Get(ref)
	require.NoError(t, err)
	return localregistry.Entry{
		Registry: LocalRegistryRegistry, Repository: repository, Tag: tag, Digest: found.Digest.String(),
		MediaType: string(found.MediaType), Size: found.Size,
	}
}

// Login writes the file that `podman login` writes.
func Login(n *node.Node, user, password string) {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	n.WriteFile("root/.docker/config.json", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, n.Registry.Host, auth))
}

// AdminsHosts writes an admin's hosts.toml with one upstream. containerd 1 needs a host table.
func AdminsHosts(n *node.Node, name string, up node.Upstream) {
	text := fmt.Sprintf("server = %q\ncapabilities = [\"pull\", \"resolve\"]\n", up.URL)
	if up.CA != "" {
		text += fmt.Sprintf("ca = %q\n", up.CA)
	}
	n.WriteFile(CertsD+name+"/hosts.toml", text+"\n[host]\n")
}

// SaveTable writes the table of a daemon that follows these images, which the node has.
func SaveTable(t testing.TB, n *node.Node, images ...string) {
	t.Helper()
	slices.Sort(images)
	var table localregistry.Table
	for _, image := range images {
		found, err := n.Containerd.Client().ImageService().Get(t.Context(), image)
		require.NoError(t, err)
		registry, name, _ := strings.Cut(image, "/")
		repository, tag, _ := strings.Cut(name, ":")
		table.Entries = append(table.Entries, localregistry.Entry{
			Registry: registry, Repository: repository, Tag: tag,
			Digest: found.Target.Digest.String(), MediaType: found.Target.MediaType, Size: found.Target.Size,
		})
	}
	require.NoError(t, registryhost.NewStore(n.Path("var/lib/image-update-agent")).Save(t.Context(), table))
}
