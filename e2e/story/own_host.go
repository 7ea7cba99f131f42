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
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

// The registry for which a node asks its own host, its hosts.toml below the root of the node, and an image there.
const (
	OwnHostRegistry = "registry.example.com"
	OwnHostFile     = "etc/containerd/certs.d/" + OwnHostRegistry + "/hosts.toml"
	OwnHostImage    = OwnHostRegistry + "/demo/velum:4.0.0-rev1"
)

// OwnHostVerb runs a verb of the own host that must end with code.
func OwnHostVerb(t *testing.T, n *node.Node, code int, args ...string) {
	t.Helper()
	r := n.Agent(append([]string{"localhost"}, args...)...)
	require.Equal(t, code, r.Code, "%v: %s%s", args, r.Stdout, r.Stderr)
}

// EntryOf is an entry of the table: a tag that names what the registry has under it now.
func EntryOf(t *testing.T, r *node.Registry, repository, tag string) ownhost.Entry {
	t.Helper()
	ref, err := name.NewTag(r.Ref(repository)+":"+tag, name.Insecure)
	require.NoError(t, err)
	found, err := remote.Get(ref)
	require.NoError(t, err)
	return ownhost.Entry{
		Registry: OwnHostRegistry, Repository: repository, Tag: tag, Digest: digest.Digest(found.Digest.String()),
		MediaType: string(found.MediaType), Size: found.Size,
	}
}

// Login writes what `podman login` writes.
func Login(n *node.Node, user, password string) {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	n.WriteFile("root/.docker/config.json", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, n.Registry.Host, auth))
}

// AdminsHosts writes an admin's hosts.toml that names one upstream. containerd 1 does not know dial_timeout, and wants
// a table of hosts.
func AdminsHosts(n *node.Node, name string, up node.Upstream) {
	text := fmt.Sprintf("server = %q\ncapabilities = [\"pull\", \"resolve\"]\ndial_timeout = \"5s\"\n", up.URL)
	if up.CA != "" {
		text += fmt.Sprintf("ca = %q\n", up.CA)
	}
	n.WriteFile(CertsD+name+"/hosts.toml", text+"\n[host]\n")
}

// SaveTable writes the table of a daemon that follows these images, which are on the node.
func SaveTable(t testing.TB, n *node.Node, images ...string) {
	t.Helper()
	slices.Sort(images)
	var table ownhost.Table
	for _, image := range images {
		found, err := n.Containerd.Client().ImageService().Get(t.Context(), image)
		require.NoError(t, err)
		registry, name, _ := strings.Cut(image, "/")
		repository, tag, _ := strings.Cut(name, ":")
		table.Entries = append(table.Entries, ownhost.Entry{
			Registry: registry, Repository: repository, Tag: tag,
			Digest: found.Target.Digest, MediaType: found.Target.MediaType, Size: found.Target.Size,
		})
	}
	require.NoError(t, localhost.NewStore(n.Path("var/lib/image-update-agent")).Save(t.Context(), table))
}
