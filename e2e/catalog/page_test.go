// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The commands of docs/catalog.md, one after the other, as they stand there, after those of docs/publish.md.
func TestCommandsOfTheCatalogPage(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.Distribution3)
	p.throughProxy(t, "")
	dir := t.TempDir()
	for _, each := range []string{"ci", "prod"} {
		key, pub := catalogKeys(t)
		require.NoError(t, os.Rename(key, filepath.Join(dir, each+".key")))
		require.NoError(t, os.Rename(pub, filepath.Join(dir, each+".pub")))
	}
	p.registry.Publish("velum", "4.0.0-rev1-build1.3", node.Image{})
	p.registry.Publish("velum", "4.0.0-rev2-build1.5", node.Image{Answer: "two"})
	p.registry.Publish("etcd", "3.4-rev1-build1.1", node.Image{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "builds.txt"), []byte(
		"# of today\nregistry.example.com/velum:4.0.0-rev1-build1.3\nregistry.example.com/etcd:3.4-rev1-build1.1\n"), 0o600))
	text, err := os.ReadFile("../../docs/catalog.md")
	require.NoError(t, err)
	// 3: nothing to do, as for a prune of what is younger than a day.
	commands := []string{
		`image-catalog() { command image-catalog "$@" --plain-http || [ $? = 3 ]; }`,
		`export IMAGE_CATALOG=registry.example.com/releases/catalog`,
		`for channel in stage:ci prod:prod; do image-catalog init ${channel%:*} --key ${channel#*:}.key; done`,
		`image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.5 --key ci.key`,
	}
	blocks := strings.Split(string(text), "\n```sh\n")
	for _, block := range blocks[1:] {
		lines, _, found := strings.Cut(block, "\n```")
		require.True(t, found)
		commands = append(commands, lines)
	}
	assert.Greater(t, len(commands), 8)
	p.shell(t, dir, strings.Join(commands, "\n"))

	p.env = append(p.env, "IMAGE_CATALOG=registry.example.com/releases/catalog")
	c := p.inspect(t, "prod", "velum", "--plain-http", "--trust", filepath.Join(dir, "prod.pub"))
	assert.Equal(t, map[string]bool{
		"registry.example.com/velum:4.0.0-rev1-build1.3": true, "registry.example.com/velum:4.0.0-rev2-build1.5": true,
	}, c.tags())
	assert.EqualValues(t, 6, c.Version)
}
