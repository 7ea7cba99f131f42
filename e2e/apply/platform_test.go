// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// entry is an entry of an index: an image for a platform, or an index.
type entry struct {
	named string // OS/ARCHITECTURE/VARIANT; empty: the index names no platform
	is    string // of the image; empty: the same as named
	in    []entry
	want  bool // expected to run here
}

// This machine's platform, an unknown variant of it, another one that it can run, and a foreign one.
var (
	ownPlatform   = "linux/" + runtime.GOARCH
	ownVariant    = ownPlatform + map[string]string{"amd64": "/v3", "arm64": "/v9"}[runtime.GOARCH]
	olderPlatform = map[string]string{"amd64": "linux/386", "arm64": "linux/arm/v7"}[runtime.GOARCH]
	otherPlatform = map[string]string{"amd64": "linux/arm64/v8", "arm64": "linux/s390x"}[runtime.GOARCH]
)

// indexes are repositories; without a wanted entry, the image is for another platform.
var indexes = map[string][]entry{
	"variants": {{named: "unknown/unknown"}, {named: otherPlatform}, {named: ownVariant}, {named: ownPlatform, want: true}},
	"attested": {{named: ownPlatform, want: true}, {named: "unknown/unknown"}},
	"twice":    {{named: ownPlatform, want: true}, {named: ownPlatform}},
	"older":    {{named: otherPlatform}, {named: olderPlatform, want: true}},
	"unnamed":  {{is: ownPlatform, want: true}},
	"nested":   {{named: otherPlatform}, {named: ownPlatform, in: []entry{{named: otherPlatform}, {named: ownPlatform, want: true}}}},
	"others":   {{named: otherPlatform}},
	"variant":  {{named: ownVariant}},
	"guessed":  {{is: otherPlatform}, {is: ownPlatform}},
}

// made builds an index from images in the registry, and records the config of the one that runs here.
func made(t *testing.T, n *node.Node, repository string, entries []entry, wanted *string) v1.ImageIndex {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for i, e := range entries {
		add := mutate.IndexAddendum{}
		if e.in != nil {
			add.Add = made(t, n, repository, e.in, wanted)
		} else {
			if e.is == "" {
				e.is = e.named
			}
			answer := fmt.Sprint(repository, i, len(entries))
			image := pushed(t, n, repository, node.Image{OCI: true, Answer: answer, Platforms: []string{e.is}})
			if e.want {
				config, err := image.ConfigName()
				require.NoError(t, err)
				*wanted = config.String()
			}
			add.Add = image
		}
		if e.named != "" {
			p, err := v1.ParsePlatform(e.named)
			require.NoError(t, err)
			add.Platform = p
		}
		index = mutate.AppendManifests(index, add)
	}
	return index
}

func pushed(t *testing.T, n *node.Node, repository string, image node.Image, tags ...string) v1.Image {
	t.Helper()
	ref, err := name.NewDigest(n.Registry.Ref(repository)+"@"+n.Registry.Push(repository, image, tags...), name.Insecure)
	require.NoError(t, err)
	found, err := remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	return found
}

// listed returns the images that CRI lists, by repository.
func listed(t *testing.T, n *node.Node) map[string]string {
	t.Helper()
	answer, err := n.CRI().Images.ListImages(t.Context(), &cri.ListImagesRequest{})
	require.NoError(t, err)
	ids := map[string]string{}
	for _, image := range answer.GetImages() {
		for _, digest := range image.GetRepoDigests() {
			repository, _, _ := strings.Cut(digest, "@")
			ids[repository] = image.GetId()
		}
	}
	return ids
}

// Staging chooses the entry of an index that kubelet's pull of the tag then runs, on each containerd; an image that
// cannot run is not offered.
func TestPlatformIsWhatKubeletRuns(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			configs := map[string]string{} // by repository; empty: for another platform
			for repository, entries := range indexes {
				tag, err := name.NewTag(n.Registry.Ref(repository)+":1.0.0-rev1", name.Insecure)
				require.NoError(t, err)
				var config string
				index := made(t, n, repository, entries, &config)
				require.NoError(t, remote.WriteIndex(tag, index, remote.WithContext(t.Context())))
				configs[repository] = config
			}
			plain, err := pushed(t, n, "plain", node.Image{Answer: "plain"}, "1.0.0-rev1").ConfigName()
			require.NoError(t, err)
			configs["plain"] = plain.String()
			pushed(t, n, "foreign", node.Image{Answer: "foreign", Platforms: []string{otherPlatform}}, "1.0.0-rev1")
			configs["foreign"] = ""
			for repository := range configs {
				n.WriteFile(story.TemplateDir+repository+".yaml", story.PodYAML(repository, n.Registry.Ref(repository)+":1.0.0-rev1"))
			}
			var config string
			unstaged, err := name.NewTag(n.Registry.Ref("unstaged:1"), name.Insecure)
			require.NoError(t, err)
			index := made(t, n, "unstaged", indexes["older"], &config)
			require.NoError(t, remote.WriteIndex(unstaged, index, remote.WithContext(t.Context())))
			_, err = n.CRI().Pull(unstaged.String())
			assert.Equal(t, version == node.Containerd2, err != nil, "its CRI wants the very platform: %v", err)

			s := story.Parsed(t, n.Agent("run", "--once", "--output", "json"))
			var before map[string]string
			node.Eventually(t, "cri lists what was staged", story.Ready, func() error { // it learns of it by events
				before = listed(t, n)
				for repository, config := range configs {
					if config != "" && before[n.Registry.Ref(repository)] == "" {
						return fmt.Errorf("%s: not listed", repository)
					}
				}
				return nil
			})
			n.Registry.Forget()
			for repository, config := range configs {
				i := story.ImageOf(t, s, repository+".yaml")
				image := n.Registry.Ref(repository)
				got, err := n.CRI().Pull(image + ":1.0.0-rev1")
				if config == "" {
					assert.Contains(t, i.Error, "not for this platform", repository)
					assert.False(t, i.Staged, repository)
					assert.NotContains(t, before, image)
					// kubelet would pull a plain manifest of any platform, and fail to start it.
					assert.Equal(t, repository == "foreign", err == nil, "%s: %v", repository, err)
					continue
				}
				require.NoError(t, err, repository)
				assert.True(t, i.Staged, "%s: %s", repository, i.Error)
				assert.Equal(t, config, before[image], "%s: staged", repository)
				assert.Equal(t, config, got, "%s: pulled by kubelet", repository)
			}
			for _, r := range n.Registry.Requests() {
				// containerd 2 also fetches other matching entries, and runs the first.
				if r.Kind == node.Blob && r.Repository != "twice" {
					assert.Empty(t, configs[r.Repository], "%s: kubelet's pull brings what staging has not", r.Repository)
				}
			}
		})
	}
}
