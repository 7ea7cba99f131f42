// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const quickStart = "../../docs/quick-start.md"

// shown is a command of the page and its output there.
type shown struct{ command, output string }

// shownBy reads the commands of a page: indented lines that begin with "$ ", and the output up to the next one or to
// the end of the indented block. Empty lines at the end of a block do not count.
func shownBy(page string) []shown {
	var all []shown
	in := false
	for line := range strings.Lines(page) {
		text, indented := strings.CutPrefix(line, "    ")
		command, is := strings.CutPrefix(text, "$ image-update-agent ")
		switch {
		case indented && is:
			command, _, _ = strings.Cut(command, "#")
			all, in = append(all, shown{command: strings.TrimSpace(command)}), true
		case line != "\n" && !indented:
			in = false
		case in:
			all[len(all)-1].output += text
		}
	}
	for n := range all {
		all[n].output = strings.TrimRight(all[n].output, "\n")
	}
	return all
}

// Parts that differ in each run: moments and their ages, digests, and the address of the registry, which has no TLS
// here.
var quickStartVaries = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`\n\nWithout verified TLS:\n.+`), ""},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z0-9+-]+`), "TIME"},
	{regexp.MustCompile(`TIME \((just now|in [0-9dhms ]+|[0-9dhms ]+ ago)\)`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+|registry\.example\.com`), "REGISTRY"},
	{regexp.MustCompile(`[0-9a-f]{12,64}`), "DIGEST"},
	{regexp.MustCompile(`\d+(\.\d+)? (bytes|kB|MB)`), "SIZE"},
	{regexp.MustCompile(`[ \t]+\n`), "\n"},
	{regexp.MustCompile(` +`), " "}, // columns are as wide as their varying content
}

func withoutWhatVaries(text string) string {
	for _, v := range quickStartVaries {
		text = v.is.ReplaceAllString(text, v.by)
	}
	return strings.TrimSpace(text)
}

// The page's commands, in order, on a node where kubelet runs a pod that the agent does not know: their output matches
// the page.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(quickStart)
	require.NoError(t, err)
	commands := shownBy(string(page))
	require.NotEmpty(t, commands)

	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port := n.FreePort()
	publish := func(long string, seed uint64) {
		n.Registry.Publish("shop/web", long, node.Image{Layers: []node.Layer{{Seed: seed, Size: 100 << 10}}})
	}
	publish("1.4.0-rev1-build1.1", 1)
	n.WriteFile("etc/kubernetes/manifests/web.yaml", story.PodYAML("web", n.Registry.Ref("shop/web:1.4.0-rev1"))+
		fmt.Sprintf("    imagePullPolicy: Always\n    args: [\"127.0.0.1:%d\"]\n  hostNetwork: true\n  terminationGracePeriodSeconds: 5\n", port))
	n.WriteFile(story.ConfigFile, "manage: [web.yaml]\nsettle: 1s\nconfirmAfter: 1s\n")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=12h")
	before := map[int]func(){ // events of the page's story, by command
		0: func() { n.WaitAnswer(port, "1.4.0-rev1-build1.1") },
		1: func() { publish("1.4.0-rev2-build2.1", 2) },
	}
	for i, c := range commands {
		if act := before[i]; act != nil {
			act()
		}
		r := n.Agent(strings.Fields(c.command)...)
		t.Logf("$ image-update-agent %s\n%s%s", c.command, r.Stderr, r.Stdout)
		assert.Zero(t, r.Code, c.command)
		assert.Equal(t, withoutWhatVaries(c.output), withoutWhatVaries(r.Stdout), "docs/quick-start.md: %s", c.command)
	}
	n.WaitAnswer(port, "1.4.0-rev1-build1.1")
	assert.Zero(t, daemon.Stop().Code)
}

func TestShownBy(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []shown{{"check", "State: x\n\nIMAGE"}, {"plan", ""}, {"status", "State: y"}}, shownBy(
		"# Page\n\n    systemctl enable x\n\n    $ image-update-agent check\n    State: x\n\n    IMAGE\n\nText.\n\n"+
			"    other\n\n    $ image-update-agent plan    # look\n    $ image-update-agent status\n    State: y\n"))
}
