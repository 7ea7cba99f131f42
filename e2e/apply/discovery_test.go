// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A registry with TLS and its own CA is asked as certs.d says. Without the CA it is not trusted, and nothing changes.
func TestTLSRegistry(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, TLS: true})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	s := story.Cycle(t, n, 0)
	assert.False(t, s.Sources[0].Insecure)
	assert.True(t, story.ImageOf(t, s, "velum.yaml").Staged)
	story.Rel(n, "demo/velum", "4.0.0-rev2-build1.1")

	hosts := "etc/containerd/certs.d/" + n.Registry.Host + "/hosts.toml"
	trusting := n.ReadFile(hosts)
	n.WriteFile(hosts, "server = \"https://"+n.Registry.Host+"\"\n")
	before := story.Look(t, n, story.GrainFile)
	s = story.Cycle(t, n, 1)
	assert.Equal(t, status.StateStale, s.State)
	assert.Contains(t, s.Reason, "certificate signed by unknown authority")
	before.Unchanged(t, n, story.GrainFile)

	n.WriteFile(hosts, trusting)
	assert.Equal(t, status.StateStaged, story.Cycle(t, n, 0).State)
}

// Images of the configuration are staged without any pod.
func TestImagesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	digest := story.Rel(n, "demo/tool", "1.0.0-rev1-build1.1")
	n.WriteFile(story.ConfigFile, "images:\n- "+n.Registry.Ref("demo/tool:1.0.0-rev1")+"\n")
	s := story.Cycle(t, n, 0)
	tool := story.ImageOf(t, s, "")
	assert.Equal(t, n.Registry.Ref("demo/tool"), tool.Image)
	assert.Equal(t, "1.0.0-rev1", tool.Follow)
	assert.True(t, tool.Staged)
	images, _ := story.Stored(t, n)
	assert.Contains(t, images[n.Registry.Ref("demo/tool:1.0.0-rev1-build1.1")], digest)
	n.CRI().AwaitTag(n.Registry.Ref("demo/tool:1.0.0-rev1-build1.1"), true)
}

// An image that no longer exists prevents offers for its whole pod, and for no other.
func TestOneUnresolvedImage(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	side := story.Rel(n, "demo/side", "1.0.0-rev1-build1.1")
	n.WriteFile(story.TemplateDir+"pair.yaml", story.PodYAML("pair", n.Registry.Ref("demo/velum:4.0.0-rev1"))+
		"  - name: side\n    image: "+n.Registry.Ref("demo/side:1.0.0-rev1")+"\n")
	n.Registry.Intercept(node.Fail(node.Tags, http.StatusNotFound)) // rev2 is not visible yet
	require.NoError(t, os.Remove(n.Path(story.RecordFile)))
	story.IsCurrent(t, story.Cycle(t, n, 0))
	before := story.Look(t, n, story.GrainFile, story.WaitingDir)

	n.Registry.Intercept(nil)
	n.Registry.Delete("demo/side", side)
	s := story.Cycle(t, n, 1)
	assert.Contains(t, s.Reason, "pair.yaml: the registry no longer has the followed tag")
	pair := story.PodOf(t, s, "pair.yaml")
	assert.Empty(t, pair.Change)
	assert.Contains(t, pair.Holds[0].Reason, n.Registry.Ref("demo/side:1.0.0-rev1")+": ")
	assert.NoFileExists(t, n.Path(story.WaitingDir+"pair.yaml"))
	assert.Equal(t, "revision", story.PodOf(t, s, "velum.yaml").Change)
	assert.FileExists(t, n.Path(story.Waiting))
	assert.Equal(t, before.Files, story.Look(t, n, story.GrainFile, story.WaitingDir).Files)
}

// A placeholder's tag comes from the configuration, else from the tag files of the image packages, else from the
// registry; a prefix is rewritten.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	for name, value := range map[string]string{
		story.ConfigFile: "values:\n  sles12/set: 1.0.0-rev1\n  sles12/both: 1.0.0-rev1\n" +
			"rewrites:\n- {from: sles12, to: " + n.Registry.Ref("demo") + "}\n" +
			"repositories:\n- {match: \"*\", updates: rebuild}\n",
		"usr/share/suse-docker-images/native/sles12-native.tag":         "1.0.0-rev1\n",
		"usr/share/suse-docker-images/native/sles12-native.metadata":    `{"image": {"name": "sles12/native", "tags": ["1.0.0-rev2"], "file": "x.tar.xz"}}`,
		"usr/share/suse-docker-images/native/both.metadata":             `{"name": "sles12/both", "tags": ["1.0.0-rev2"]}`,
		"usr/share/suse-docker-images/native/broken.metadata":           `{"name": `,
		"usr/share/suse-containermetadata-images/sles12-image-metadata": `{"sles12/image": ["1.0.0", "1.0.0-rev1", "1.0.0-rev1-build1.1"]}`,
	} {
		n.WriteFile(name, value)
	}
	values := map[string]string{
		"set": "1.0.0-rev1", "native": "1.0.0-rev1", "both": "1.0.0-rev1", "image": "1.0.0-rev1", "none": "1.0.0-rev2",
	}
	for name := range values {
		story.Rel(n, "demo/"+name, "1.0.0-rev1-build1.1")
		story.Rel(n, "demo/"+name, "1.0.0-rev2-build1.1")
		n.WriteFile(story.TemplateDir+name+".yaml", story.PodYAML(name, "sles12/"+name+":__TAG__"))
	}
	story.Cycle(t, n, 0)
	for name, tag := range values {
		want := story.PodYAML(name, n.Registry.Ref("demo/"+name+":"+tag)+"\n    imagePullPolicy: Always")
		assert.Equal(t, want, n.ReadFile(story.ManifestDir+name+".yaml"))
	}
}

// caasp has the newest intermediate tag of repositories on registry.suse.com; the short one if there is no other.
var caasp = map[string]string{
	"v4.5/cilium": "1.7.6-rev6", "v4.5/caasp-dex": "2.23.0-rev3", "v4.5/kured": "1.4.3-rev6", "v4.5/kucero": "1.3.0-rev6",
	"v4.5/etcd": "3.4.3-rev1", "v4.5/kube-proxy": "v1.18.6-rev2", "v4.5/proxy": "v1.18.6", "v4.5/istio-proxyv2": "1.5.4-rev5",
	"v4.5/istio-base": "1.5.4-rev4", "v4.5/metrics-server": "0.3.6-rev3", "v4.5/k8s-sidecar": "0.1.75-rev1",
}

// Real tag lists, including odd tags.
func TestRealTags(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	n.WriteFile(story.ConfigFile, "rewrites:\n- {from: registry.suse.com/caasp, to: "+n.Registry.Ref("caasp")+"}\n"+
		"manage: [v4.5-etcd.yaml]\n") // of the control plane, whose images are rewritten if it is listed
	listed := map[string][]string{}
	file, err := os.Open("../../tags/testdata/tags.tsv")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if name, ok := strings.CutPrefix(fields[0], "registry.suse.com/caasp/"); ok && caasp[name] != "" {
			listed[name] = append(listed[name], fields[1])
		}
	}
	require.Len(t, listed, len(caasp))
	for name, tags := range listed {
		n.Registry.Push("caasp/"+name, node.Image{}, tags...)
		file := strings.ReplaceAll(name, "/", "-")
		n.WriteFile(story.TemplateDir+file+".yaml", story.PodYAML(strings.ReplaceAll(file, ".", "-"), "registry.suse.com/caasp/"+name+":__TAG__"))
	}
	plan := planned(t, n)
	for name, want := range caasp {
		p := plan[strings.ReplaceAll(name, "/", "-")+".yaml"]
		require.Empty(t, p.Error+p.Images[0].Error, name)
		got, _, _ := strings.Cut(p.Images[0].To, "-build")
		assert.Equal(t, want, got, name)
	}
}
