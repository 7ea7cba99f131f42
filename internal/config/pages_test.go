// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// A page's configuration is taken, and says what the page says that it does.
func TestTheExamplesOfThePagesAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubeadm.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 1)
	c := load(t, Sources{Root: tree(t, map[string]string{adminFile: blocks[0][1]})})
	assert.Contains(t, c.Settings.Manage, "kube-apiserver.yaml")
	for repository, step := range map[string][2]string{
		"registry.k8s.io/kube-apiserver": {"v1.34.0", "v1.34.1"},
		"registry.k8s.io/etcd":           {"3.6.4-0", "3.6.5-0"},
	} {
		rule := ruleOf(c.Settings, repository)
		assert.Equal(t, tags.Patch, rule.Updates, repository)
		from, err := rule.Dialect.Parse(step[0])
		require.NoError(t, err, repository)
		to, err := rule.Dialect.Parse(step[1])
		require.NoError(t, err, repository)
		assert.Equal(t, tags.Patch, tags.ChangeBetween(from, to), repository)
	}
}
