// SPDX-License-Identifier: Apache-2.0

package agenttest_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

const repository = "registry.suse.com/caasp/v4/velum"

func TestRegistryConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestSource(t, func(*testing.T) agenttest.SourceUnderTest {
		r := agenttest.NewRegistry()
		return agenttest.SourceUnderTest{
			Source: r, Repository: repository,
			Publish: func(_ *testing.T, tags ...string) (digest.Digest, release.Build) {
				rel := r.PublishBuild(repository, release.Build{
					Config: digest.FromString("config"), Size: 1, Version: "4.0.0", Origin: "caasp/v4/velum",
				}, tags...)
				return rel.Digest, rel.Build
			},
			PublishForeign: func(_ *testing.T, tags ...string) digest.Digest {
				rel := r.Publish(repository, tags...)
				r.OtherPlatform(rel.Digest)
				return rel.Digest
			},
			Retract: func(_ *testing.T, tag string) { r.Retract(repository, tag) },
			Down:    func(*testing.T) { r.Down(agenttest.ErrRefused) },
		}
	})
}

func TestNodeConformsAsImages(t *testing.T) {
	t.Parallel()
	agenttest.TestImages(t, func(*testing.T) agenttest.ImagesUnderTest {
		r := agenttest.NewRegistry()
		n := agenttest.NewNode(r)
		build := 0
		publish := func(*testing.T) release.Release {
			build++
			return r.Release(repository, "4.0.0", 1, "1."+string(rune('0'+build)))
		}
		return agenttest.ImagesUnderTest{
			Images: n, Publish: publish,
			PublishForeign: func(t *testing.T) release.Release {
				rel := publish(t)
				r.OtherPlatform(rel.Digest)
				return rel
			},
			Vanish: func(_ *testing.T, rel release.Release) { r.Vanish(repository, rel.Digest) },
			Lose:   func(_ *testing.T, rel release.Release) { n.Lose(rel.Digest) },
			PullPage: func(_ *testing.T, rel release.Release) {
				n.PullPage(release.Reference{Repository: rel.Repository, Tag: rel.Tag})
			},
			PullFloating: func(t *testing.T, rel release.Release) {
				if _, err := n.Pull(t.Context(), release.Reference{Repository: rel.Repository, Tag: rel.Tag}); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func TestFleetConforms(t *testing.T) {
	t.Parallel()
	fleet := &agenttest.Fleet{}
	agenttest.TestFleetLock(t, fleet.Node)
}

func TestNodeConformsAsPods(t *testing.T) {
	t.Parallel()
	agenttest.TestPods(t, func(*testing.T) agenttest.PodsUnderTest {
		r := agenttest.NewRegistry()
		n := agenttest.NewNode(r)
		ref := release.Reference{Repository: repository, Tag: "4.0.0-rev1"}
		return agenttest.PodsUnderTest{
			Pods: n, Wait: time.Second,
			Run: func(*testing.T) agenttest.RunningPod {
				rel := r.Release(repository, "4.0.0", 1, "1.1")
				n.PutPodManifest("velum.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\nspec:\n"+
					"  containers: [{name: velum, image: '"+ref.String()+"', imagePullPolicy: Always}]\n"+
					"  initContainers: [{name: setup, image: '"+ref.String()+"', imagePullPolicy: Always}]\n"))
				return agenttest.RunningPod{
					Name: "velum-" + agenttest.NodeName, Namespace: "default", Container: "velum", Init: "setup",
					Ref: ref, Image: rel.Config,
				}
			},
			Move: func(*testing.T, release.Reference) digest.Digest {
				return r.Release(repository, "4.0.0", 1, "1.2").Config
			},
		}
	})
}

func TestNodeConformsAsRuntimeEvents(t *testing.T) {
	t.Parallel()
	agenttest.TestRuntimeEvents(t, func(*testing.T) agenttest.EventsUnderTest {
		n := agenttest.NewNode(agenttest.NewRegistry())
		return agenttest.EventsUnderTest{
			Events:  n,
			Start:   func(_ *testing.T, id string) { n.Tell(watch.RuntimeEvent{ContainerID: id}) },
			End:     func(_ *testing.T, id string) { n.Tell(watch.RuntimeEvent{ContainerID: id, Ended: true}) },
			Restart: func(*testing.T) { n.Tell(watch.RuntimeEvent{}) },
		}
	})
}

func TestNodeConformsAsPodFiles(t *testing.T) {
	t.Parallel()
	agenttest.TestPodFiles(t, func(*testing.T) agenttest.FilesUnderTest {
		n := agenttest.NewNode(agenttest.NewRegistry())
		return agenttest.FilesUnderTest{
			Files:          n,
			PutTemplate:    func(_ *testing.T, name string, data []byte) { n.PutTemplate(name, data) },
			PutPodManifest: func(_ *testing.T, name string, data []byte) { n.PutPodManifest(name, data) },
			PutUnsafe:      func(_ *testing.T, name string) { n.PutBroken(name, errors.New("is a symlink")) },
		}
	})
}

func TestGrainConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestAnnouncer(t, func(*testing.T) agenttest.AnnouncerUnderTest {
		g := &agenttest.Grain{}
		return agenttest.AnnouncerUnderTest{
			Announcer: g, Writes: func(*testing.T) int { return g.Writes() },
			Read: func(*testing.T) status.Announcement { return g.Last() },
			SetBusy: func(_ *testing.T, busy bool) {
				g.SetBusy(map[bool]string{true: "update_in_progress is true"}[busy])
			},
		}
	})
}

func TestDiskConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestRecorder(t, func(*testing.T) (record.Recorder, func() record.Recorder) {
		d := &agenttest.Disk{}
		return d, func() record.Recorder { return d }
	})
}

func TestLocalRegistryConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestLocalRegistry(t, func(*testing.T) agenttest.LocalRegistryUnderTest {
		o := &agenttest.LocalRegistry{}
		return agenttest.LocalRegistryUnderTest{
			Store:   o,
			Read:    func(*testing.T) localregistry.Table { return o.Table() },
			Written: func(*testing.T) string { return strconv.Itoa(o.Writes()) },
		}
	})
}
