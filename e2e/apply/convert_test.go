// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// legacy returns a pod manifest from before the agent: with a short tag, without a pull policy.
func legacy(name, image string, port int) string {
	return strings.ReplaceAll(strings.Replace(story.VelumTemplate(port, image), " # the dashboard", "", 1), "name: velum", "name: "+name)
}

// TestConversion: pods from before the agent are converted to the intermediate tag and the pull policy after approval,
// not before; other pods are changed only if they are listed.
func TestConversion(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	ours, theirs := n.FreePort(), n.FreePort()
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Rel(n, "kube/api", "1.18.6-rev1-build1.1")
	short := legacy("velum", n.Registry.Ref("demo/velum:4.0.0"), ours)
	n.WriteFile(story.VelumYAML, short)
	n.WriteFile(story.TemplateDir+"velum.yaml", strings.Replace(short, ":4.0.0", ":__TAG__", 1))
	api := story.ManifestDir + "api.yaml"
	n.WriteFile(api, legacy("api", n.Registry.Ref("kube/api:1.18.6-rev1"), theirs))
	n.WaitAnswer(ours, "4.0.0-rev1-build1.1")
	n.WaitAnswer(theirs, "1.18.6-rev1-build1.1")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	before := story.Look(t, n, story.GrainFile, story.WaitingDir)

	story.Rel(n, "kube/api", "1.18.6-rev1-build1.2")
	s := story.Check(t, n)
	velum := story.ImageOf(t, s, "velum.yaml")
	assert.Equal(t, policy.ChangeConvert, velum.Change)
	assert.True(t, velum.Staged)
	kube := story.ImageOf(t, s, "api.yaml")
	assert.Equal(t, "rebuild", kube.Change)
	assert.True(t, kube.Staged, "staged and offered")
	assert.Equal(t, status.HoldUnmanaged, story.PodOf(t, s, "api.yaml").Holds[0].Name)
	assert.Equal(t, before.Files, story.Look(t, n, story.GrainFile, story.WaitingDir).Files)

	r := n.Agent("apply", "api.yaml")
	assert.Equal(t, 4, r.Code, r.Stdout)
	assert.Contains(t, r.Stdout, "api.yaml")
	assert.Contains(t, r.Stdout, "manage")
	assert.Equal(t, before.Files, story.Look(t, n, story.GrainFile, story.WaitingDir).Files)
	story.Answers(t, theirs, "1.18.6-rev1-build1.1")

	story.Apply(t, n, 0, "velum")
	assert.Equal(t, strings.Replace(short, ":4.0.0\n", ":4.0.0-rev1\n    imagePullPolicy: Always\n", 1), story.Followed(t, n, "velum.yaml"))
	n.WaitAnswer(ours, "4.0.0-rev1-build1.1")

	n.WriteFile(story.ConfigFile, "manage: [api.yaml]\n")
	story.Hangup(t, n, daemon)
	story.Check(t, n)
	story.Apply(t, n, 0, "api.yaml")
	n.WaitAnswer(theirs, "1.18.6-rev1-build1.2")
	assert.Equal(t, legacy("api", n.Registry.Ref("kube/api:1.18.6-rev1"), theirs), n.ReadFile(api), "it keeps its pull policy")
	s = story.St(t, n)
	story.IsCurrent(t, s)
	goneTemplates(t, n, ours)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// goneTemplates: a template is removed. A pod manifest of the agent is removed after approval, because its pod runs;
// others, and edited ones, never.
func goneTemplates(t *testing.T, n *node.Node, port int) {
	t.Helper()
	n.WriteFile(story.TemplateDir+"other.yaml", story.PodYAML("other", n.Registry.Ref("demo/velum:__TAG__")))
	require.NoError(t, os.Remove(n.Path(story.TemplateDir+"velum.yaml")))
	written := n.ReadFile(story.VelumYAML)
	n.WriteFile(story.VelumYAML, written+"# edited\n")
	s := story.Check(t, n)
	assert.Equal(t, status.HoldEdited, story.PodOf(t, s, "velum.yaml").Holds[0].Name)
	r := n.Agent("apply", "velum.yaml")
	assert.Equal(t, 4, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Equal(t, written+"# edited\n", n.ReadFile(story.VelumYAML))

	n.WriteFile(story.VelumYAML, written)
	s = story.Check(t, n)
	assert.Equal(t, policy.ChangeRemove, story.PodOf(t, s, "velum.yaml").Change)
	assert.Equal(t, written, n.ReadFile(story.VelumYAML), "it runs")
	story.Answers(t, port, "4.0.0-rev1-build1.1")
	story.Apply(t, n, 0, "velum.yaml")
	assert.NoFileExists(t, n.Path(story.VelumYAML))
	assert.FileExists(t, n.Path(story.ManifestDir+"api.yaml"), "nobody else's")
	node.Eventually(t, "the pod ends", story.Ready, func() error {
		if answer, err := node.Answer(port); err == nil {
			return &stillThere{answer}
		}
		return nil
	})
}

type stillThere struct{ answer string }

func (s *stillThere) Error() string { return "still answers " + s.answer }
