// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Removable media that were filled by the command of docs/air-gap.md bring catalog, signatures and images to a node.
func TestRemovableMediaWithACatalog(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	p := &publishers{node: n, registry: n.Registry, program: n.CatalogProgram()}
	p.key, p.pub = catalogKeys(t)
	p.throughProxy(t, catalogName, n.Part("crane"))
	key, err := os.ReadFile(p.pub)
	require.NoError(t, err)
	n.WriteFile("etc/image-update-agent/catalog-keys/prod.pem", string(key))
	n.WriteFile(story.ConfigFile, "catalog: {repository: "+catalogName+", keys: [/etc/image-update-agent/catalog-keys]}\n")
	n.WriteHosts(story.DocHost, n.Registry)
	story.Template(n, 1, story.DocHost+"/caasp/v4/velum:__TAG__")
	add := func(long string, seed uint64) {
		n.Registry.Publish("caasp/v4/velum", long, node.Image{OCI: true, Layers: []node.Layer{{Seed: seed, Size: 1 << 20}}})
		p.does(t, "add", "prod", "--plain-http", "--key", p.key, story.DocHost+"/caasp/v4/velum:"+long)
	}
	p.does(t, "init", "prod", "--plain-http", "--key", p.key)
	add("4.0.0-rev1-build1.1", 1)
	story.IsCurrent(t, story.Cycle(t, n, 0))
	add("4.0.0-rev2-build1.2", 2)

	stick := filepath.Join(t.TempDir(), "images")
	p.shell(t, "", strings.NewReplacer(story.DocMedia, stick, "images prod", "images prod --plain-http", "crane pull", "crane pull --insecure").
		Replace(story.AirGap(t, "## Removable media").Block(t, "sh", 3)))
	n.Registry.Down()
	r := n.Agent("run", "--once", "--output", "json", "--source", "oci:"+stick)
	s := story.Parsed(t, r)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.EqualValues(t, 3, s.Catalog.Version)
	velum := story.ImageOf(t, s, "velum.yaml")
	require.NotNil(t, velum.Offered, "%+v %s", velum, s.Reason)
	assert.Equal(t, "4.0.0-rev2-build1.2", velum.Offered.Tag)
	assert.True(t, velum.Staged)
}
