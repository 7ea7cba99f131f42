// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// The conformance suites that agenttest's fakes pass, run against the adapters with a real registry, containerd and
// kubelet.

func TestRegistryConforms(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]node.RegistryProgram{
		"docker-registry": node.DockerRegistry, "distribution 3": node.Distribution3, "distribution 2.6": node.Distribution26,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{})
			agenttest.TestSource(t, func(t *testing.T) agenttest.SourceUnderTest { return sourceOf(t, n, program) })
		})
	}
}

// sourceOf returns the adapter with a new registry. If the registry pages its tag lists, a page has one tag.
func sourceOf(t *testing.T, n *node.Node, program node.RegistryProgram) agenttest.SourceUnderTest {
	t.Helper()
	reg := n.StartRegistryWith(node.RegistryOptions{Program: program, MaxTags: 1})
	source := registry.New(registry.Options{CertsDirs: []string{n.Path("etc/containerd/certs.d")}})
	t.Cleanup(source.Close)
	count := 0
	push := func(image node.Image, tags []string) digest.Digest {
		count++
		image.Answer = fmt.Sprint(count)
		return digest.Digest(reg.Push("app", image, tags...))
	}
	under := agenttest.SourceUnderTest{
		Source: source, Repository: reg.Ref("app"),
		Publish: func(t *testing.T, tags ...string) (digest.Digest, release.Build) {
			t.Helper()
			d := push(node.Image{Labels: map[string]string{"org.opensuse.reference": "registry.suse.com/demo/app:1"}}, tags)
			b := buildOf(t, reg.Ref("app@"+d.String()))
			b.Origin = "demo/app"
			return d, b
		},
		PublishForeign: func(_ *testing.T, tags ...string) digest.Digest {
			return push(node.Image{Platforms: []string{"linux/s390x"}}, tags)
		},
		Down: func(*testing.T) { reg.Down() },
	}
	if program == node.Distribution3 {
		under.Retract = func(_ *testing.T, tag string) { reg.Untag("app", tag) }
	}
	return under
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			r := newImagesRig(t, version)
			agenttest.TestImages(t, r.underTest)
		})
	}
}

// underTest returns the store of a node that all suites share; its pins are those of this test only.
func (r *imagesRig) underTest(t *testing.T) agenttest.ImagesUnderTest {
	t.Helper()
	r.t = t
	require.NoError(t, r.store.Pins(t.Context(), nil))
	publish := func(t *testing.T, image node.Image) release.Release {
		t.Helper()
		r.seed++
		rel := r.publish(fmt.Sprintf("conform/app%d", r.seed), "1.0.0-rev1-build1.1", image)
		rel.Config = buildOf(t, rel.Repository+"@"+rel.Digest.String()).Config
		return rel
	}
	return agenttest.ImagesUnderTest{
		Images:  r.store,
		Publish: func(t *testing.T) release.Release { t.Helper(); return publish(t, node.Image{}) },
		PublishForeign: func(t *testing.T) release.Release {
			t.Helper()
			return publish(t, node.Image{Platforms: []string{"linux/s390x"}})
		},
		Vanish: func(_ *testing.T, rel release.Release) {
			r.Registry.Delete(strings.TrimPrefix(rel.Repository, r.Registry.Host+"/"), rel.Digest.String())
		},
		Lose: func(_ *testing.T, rel release.Release) { r.lose(rel) },
		PullPage: func(t *testing.T, rel release.Release) {
			t.Helper()
			r.Registry.Intercept(node.Page("/login"))
			defer r.Registry.Intercept(nil)
			_, err := r.cri.Pull(rel.Repository + ":" + rel.Tag)
			require.ErrorContains(t, err, "text/html")
		},
		PullFloating: func(t *testing.T, rel release.Release) {
			t.Helper()
			_, err := r.cri.Pull(rel.Repository + ":" + rel.Tag)
			require.NoError(t, err)
		},
	}
}

func TestRuntimeConforms(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			runtime, err := pods.New(pods.Options{Socket: n.Containerd.Socket})
			require.NoError(t, err)
			count := 0
			agenttest.TestPods(t, func(*testing.T) agenttest.PodsUnderTest {
				count++
				return runtimeOf(n, runtime, fmt.Sprint(count))
			})
		})
	}
}

// runtimeOf returns the runtime, with pods and images that have this suffix.
func runtimeOf(n *node.Node, runtime *pods.Runtime, suffix string) agenttest.PodsUnderTest {
	pod, repository := "conform"+suffix, "conform/pod"+suffix
	ref := release.Reference{Repository: n.Registry.Ref(repository), Tag: "1.0.0-rev1"}
	build := 0
	move := func(t *testing.T, _ release.Reference) digest.Digest {
		t.Helper()
		build++
		d := story.Rel(n, repository, fmt.Sprintf("1.0.0-rev1-build1.%d", build))
		return buildOf(t, ref.Repository+"@"+d).Config
	}
	return agenttest.PodsUnderTest{
		Pods: runtime, Move: move, Wait: story.Ready,
		Run: func(t *testing.T) agenttest.RunningPod {
			t.Helper()
			image := move(t, ref)
			n.WriteFile(story.ManifestDir+pod+".yaml", podWithInit(pod, ref.String(), n.FreePort()))
			return agenttest.RunningPod{
				Name: pod + "-node1", Namespace: "kube-system", Container: "main", Init: "prepare", Ref: ref, Image: image,
			}
		},
	}
}

func podWithInit(pod, image string, port int) string {
	return `apiVersion: v1
kind: Pod
metadata:
  name: ` + pod + `
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 5
  initContainers:
  - name: prepare
    image: ` + image + `
    imagePullPolicy: Always
    args: ["end"]
  containers:
  - name: main
    image: ` + image + `
    imagePullPolicy: Always
    args: ["` + story.Address(port) + `"]
`
}

// buildOf reads the build of an image from the registry, bypassing the adapter.
func buildOf(t *testing.T, reference string) release.Build {
	t.Helper()
	ref, err := name.ParseReference(reference, name.Insecure)
	require.NoError(t, err)
	image, err := remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	config, err := image.ConfigName()
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	manifest, err := image.Manifest()
	require.NoError(t, err)
	b := release.Build{Config: digest.Digest(config.String()), Size: manifest.Config.Size}
	if !file.Created.IsZero() {
		b.Created = file.Created.UTC()
	}
	for _, l := range manifest.Layers {
		b.Size += l.Size
	}
	return b
}
