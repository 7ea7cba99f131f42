// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// The configuration examples of a page are valid and have the described effect.
func TestTheExamplesOfThePagesAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/kubeadm.md")
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
		from, err := rule.Scheme.Parse(step[0])
		require.NoError(t, err, repository)
		to, err := rule.Scheme.Parse(step[1])
		require.NoError(t, err, repository)
		assert.Equal(t, tags.Patch, tags.ChangeBetween(from, to), repository)
	}
}

// The agent accepts each pattern on the page about tags, and orders the tags of its row.
func TestThePatternsOfThePageOfTags(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/tags.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindSubmatch(page)
	require.NotNil(t, block)
	load(t, Sources{Root: tree(t, map[string]string{adminFile: string(block[1])})})

	rows := regexp.MustCompile("(?m)^\\| ([^|]*) \\| `((?:pattern|versions): .*)` \\|$").FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 6)
	for _, row := range rows {
		settings := strings.ReplaceAll(row[2], `\|`, "|")
		c := load(t, Sources{Root: tree(t, map[string]string{adminFile: "repositories: [{match: a/b, tags: {" + settings + "}}]\n"})})
		scheme := ruleOf(c.Settings, "a/b").Scheme
		if step := regexp.MustCompile(`^(\S+) to ([^ :,]+)`).FindStringSubmatch(row[1]); step != nil {
			from, err := scheme.Parse(step[1])
			require.NoError(t, err, row[1])
			to, err := scheme.Parse(step[2])
			require.NoError(t, err, row[1])
			assert.True(t, tags.InLine(from, to), row[1])
			assert.Greater(t, tags.ChangeBetween(from, to), tags.Same, row[1])
		}
	}
}
