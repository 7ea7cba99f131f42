// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/tags"
)

func shipped(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../../packaging/config.yaml")
	require.NoError(t, err)
	return string(data)
}

// uncommented returns the shipped file with every setting enabled: a line without a blank after the # (or an
// indentation) is a setting, other comments explain.
func uncommented(t *testing.T) string {
	return regexp.MustCompile(`(?m)^#((?:  )*(?:- /\S+|[a-zA-Z]+:.*))$`).ReplaceAllString(shipped(t), "$1")
}

func TestTheShippedFileIsTheDefaults(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	want := load(t, Sources{Root: root}).Settings
	for name, content := range map[string]string{"as shipped": shipped(t), "uncommented": uncommented(t)} {
		file := filepath.Join(root, "config.yaml")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		assert.Equal(t, want, load(t, Sources{Root: root, File: file}).Settings, name)
	}
	assert.Nil(t, newWalker(platform.Detect("")).document([]byte(shipped(t))), "shipped, nothing is in force")
}

func TestTheShippedFileExplainsEveryKey(t *testing.T) {
	t.Parallel()
	var file yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(uncommented(t)), &file))
	lines := strings.Split(uncommented(t), "\n")
	leaves(func(path string, f field) {
		in := at(file.Content[0], path)
		require.NotNil(t, in, "%s: not in packaging/config.yaml", path)
		above := in.Line - 2 // the line of the list or mapping itself has no value
		if f.shape() == yaml.SequenceNode && !f.records() && len(in.Content) > 0 {
			above--
		}
		assert.Greater(t, len(commentUpTo(lines, above)), 15, "%s: no explanation above its line", path)
		if !f.records() {
			return
		}
		for _, inner := range fields(f.Type.Elem()) {
			assert.Regexp(t, `(?m)^#   `+inner.name+`\b|\{.*\b`+inner.name+`: `, shipped(t), path)
		}
	})
}

// commentUpTo returns the text of the comment that ends with a line.
func commentUpTo(lines []string, last int) string {
	first := last + 1
	for first > 0 && strings.HasPrefix(lines[first-1], "# ") {
		first--
	}
	return strings.TrimPrefix(strings.Join(lines[first:last+1], "\n"), "# ")
}

// TestTheExamplesOfTheManPageAreValid checks each indented block of its examples.
func TestTheExamplesOfTheManPageAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/man/image-update-agent.yaml.5.md")
	require.NoError(t, err)
	_, examples, found := strings.Cut(string(page), "\n## Example\n")
	require.True(t, found)
	blocks := regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(examples, -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		root := tree(t, map[string]string{adminFile: regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")})
		load(t, Sources{Root: root})
	}
}

// TestYAMLCanBeReadAgain: the output of `config show` gives the same settings, and every value has its origin.
func TestYAMLCanBeReadAgain(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"all.yaml", "nothing-said.yaml", "bom-crlf.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata/good", file))
		require.NoError(t, err)
		root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": string(data)})
		c := load(t, Sources{Root: root})
		shown, err := c.YAML()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(root+"/shown.yaml", shown, 0o600))
		again := load(t, Sources{Root: root, File: root + "/shown.yaml"})
		assert.Equal(t, c.Settings, again.Settings, file)
		leavesShown := regexp.MustCompile(`(?m)^.*[^:\s]$`).FindAllString(string(shown), -1)
		for _, line := range leavesShown {
			if !strings.HasSuffix(line, ":") {
				assert.Regexp(t, `# (default( of rke2)?|`+regexp.QuoteMeta(root)+`\S+:\d+)$`, line)
			}
		}
	}
}

func TestEntriesHaveOrigins(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"etc/image-update-agent/config.yaml": "log:\n  level: debug\nvalues:\n  sles12/velum: 4.0.0\n" +
			"repositories:\n  - match: '*'\n    updates: none\n    deny:\n    - '4'\n    - '5'\n  - match: a/b\n",
		"etc/image-update-agent/config.d/a.yaml": "manage:\n  - etcd.yaml\n",
	})
	c := load(t, Sources{Root: root, Interval: "0"})
	at := map[string]Entry{}
	for _, e := range c.Entries() {
		at[e.Key] = e
	}
	admin := root + adminFile
	for _, want := range []Entry{
		{"interval", "0", "environment UPDATE_POLLING_INTERVAL"},
		{"pullPolicy", "Always", "default"},
		{"log.level", "debug", admin + ":2"},
		{"log.format", "text", "default"},
		{"values.sles12/velum", "4.0.0", admin + ":4"},
		{"repositories[0].updates", "none", admin + ":7"},
		{"repositories[0].deny[1]", "5", admin + ":10"},
		{"repositories[1].match", "a/b", admin + ":11"},
		{"manage[0]", "etcd.yaml", root + dropIns + "/a.yaml:2"},
		{"tagFiles[1]", "/usr/share/suse-containermetadata-images", "default"},
	} {
		assert.Equal(t, want, at[want.Key])
	}
}

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
