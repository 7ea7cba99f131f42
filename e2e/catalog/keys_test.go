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

const nodeKeys = "etc/image-update-agent/catalog-keys/"

// keysPage returns the commands of docs/keys.md, and a directory with the key that signs prod.
func (p *publishers) keysPage(t *testing.T) (page story.Page, dir string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/keys.md")
	require.NoError(t, err)
	dir = t.TempDir()
	for name, file := range map[string]string{"prod.key": p.key, "prod.pub": p.pub} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	p.env[0] = "PATH=" + filepath.Dir(p.program) + ":" + os.Getenv("PATH")
	return story.Page(text), dir
}

// The key of prod is replaced while a node runs, and while it is away.
func TestRotationOfAKey(t *testing.T) {
	t.Parallel()
	p, _ := followsProd(t, node.Containerd2)
	n := p.node
	page, dir := p.keysPage(t)
	p.shell(t, dir, page.Block(t, "sh", 0))
	s := story.Check(t, n)
	require.Equal(t, p.inspect(t, "prod").Version, s.Catalog.Version, "the node has the old key")

	p.shell(t, dir, page.Block(t, "sh", 1))
	s = story.Check(t, n)
	assert.Equal(t, status.StateFailed, s.State, "the node was away when the new key was given out")
	before := s.Catalog.Version
	pub, err := os.ReadFile(filepath.Join(dir, "prod-2027.pub"))
	require.NoError(t, err)
	n.WriteFile(nodeKeys+"prod-2027.pem", string(pub))
	s = story.Check(t, n)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Equal(t, before+1, s.Catalog.Version)
	require.NoError(t, os.Remove(n.Path(nodeKeys+"prod.pem")))
	assert.Equal(t, status.StateCurrent, story.Check(t, n).State)
}

// Two of three keys must sign. One of them is replaced while the node is away.
func TestTwoOfThreeKeys(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	keys := map[string]string{"prod": p.key}
	public := map[string]string{"prod": p.pub}
	trust := []string{"--trust", p.pub}
	for _, name := range []string{"anna", "bert", "carl", "eve"} {
		keys[name], public[name] = catalogKeys(t)
		trust = append(trust, "--trust", public[name])
	}
	give := func(name string) {
		t.Helper()
		pub, err := os.ReadFile(public[name])
		require.NoError(t, err)
		n.WriteFile(nodeKeys+name+".pem", string(pub))
	}
	signs := func(names ...string) (version uint64) {
		t.Helper()
		args := []string{"refresh", "prod", "--expires", "30d"}
		for _, name := range names {
			args = append(args, "--key", keys[name])
		}
		p.does(t, append(args, trust...)...)
		return p.inspect(t, "prod").Version
	}
	requires := func(number string) node.Result {
		t.Helper()
		before, _, _ := strings.Cut(n.ReadFile(story.ConfigFile), "  requiredKeys")
		n.WriteFile(story.ConfigFile, before+"  requiredKeys: "+number+"\n")
		return n.Agent("reload")
	}
	give("anna")
	give("bert")
	require.Zero(t, requires("2").Code)
	s := story.Check(t, n)
	assert.Contains(t, s.Catalog.Error, "not signed by enough keys: 1, want 2")
	assert.Zero(t, s.Catalog.Version, "what one key signed does not count any more")

	version := signs("anna", "bert")
	s = story.Check(t, n)
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	require.Equal(t, version, s.Catalog.Version)
	for _, few := range [][]string{{"anna"}, {"anna", "anna"}, {"anna", "eve"}, {"carl", "eve"}} {
		signs(few...)
		s = story.Check(t, n)
		assert.NotEmpty(t, s.Catalog.Error, few)
		assert.Equal(t, version, s.Catalog.Version, few)
	}

	version = signs("anna", "carl")
	assert.Less(t, story.Check(t, n).Catalog.Version, version, "the node was away when carl's key was given out")
	give("carl")
	require.NoError(t, os.Remove(n.Path(nodeKeys+"bert.pem")))
	s = story.Check(t, n)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Equal(t, version, s.Catalog.Version)

	bad := requires("0")
	assert.NotZero(t, bad.Code)
	assert.Contains(t, bad.Stderr, "catalog.requiredKeys: \"0\": want a whole number from 1 to 64")
	require.Zero(t, requires("4").Code)
	assert.Contains(t, story.Check(t, n).Catalog.Error, "too few usable public keys: 3 in")
	assert.Contains(t, n.Agent("doctor").Stdout, "too few usable public keys: 3 in")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	require.Zero(t, requires("2").Code)
	assert.Equal(t, version, story.Check(t, n).Catalog.Version)
	assert.Contains(t, n.Agent("doctor").Stdout, "2 of them must have signed")
}

// Somebody has the key of prod, and brings a build to it. The commands of the page end that.
func TestLeakedKey(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	page, dir := p.keysPage(t)
	p.does(t, "refresh", "prod", "--expires", "30d", "--key", p.key) // version 3
	p.build(t, "4.0.0-rev1-build1.2")
	p.does(t, "promote", "stage", "prod", "velum", "--key", p.key, "--by", "thief")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)

	p.shell(t, dir, strings.Replace(page.Block(t, "sh", 2), "verify prod", "keygen prod-2027; image-catalog verify prod", 1))
	pub, err := os.ReadFile(filepath.Join(dir, "prod-2027.pub"))
	require.NoError(t, err)
	n.WriteFile(nodeKeys+"prod-2027.pem", string(pub))
	require.NoError(t, os.Remove(n.Path(nodeKeys+"prod.pem")))
	s := story.Check(t, n)
	assert.NotEqual(t, status.StateStaged, s.State, "nothing of the leaked key is offered: %s", s.Reason)
	p.shell(t, dir, page.Block(t, "sh", 3))
	s = story.Check(t, n)
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	version := s.Catalog.Version

	p.does(t, "promote", "stage", "prod", "velum:4.0.0-rev1-build1.2", "--key", p.key, "--by", "thief",
		"--trust", p.pub, "--trust", "prod="+filepath.Join(dir, "prod-2027.pub"))
	s = story.Check(t, n)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, version, s.Catalog.Version)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
}
