// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"os"
	"strings"
	"testing"

	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const (
	gcSpace = 512 << 20 // for the node's images, which use a tenth of it
	// gcRound is the message with which kubelet ends a round in which it could free enough space neither by images nor
	// by pods: our pods are critical, and kubelet does not evict them.
	gcRound = "unable to evict any pods from the node"
)

// pressure makes kubelet find its image disk full in each round: it removes all unused images that are not pinned.
var pressure = map[string]any{
	"imageMinimumGCAge": "1s", "evictionPressureTransitionPeriod": "0s",
	"evictionHard": map[string]string{
		"memory.available": "1Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "0%",
		"imagefs.available": "99%", "imagefs.inodesFree": "0%",
	},
}

// TestPinsUnderGarbageCollection checks that the running, the staged and the last good release survive kubelet's
// garbage collection. containerd 1.6 does not know pins: there the agent notices the loss at its next observation of
// the node, without a poll, and pulls the release again.
func TestPinsUnderGarbageCollection(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			g := newCrowded(t, version)
			g.pullByCRI("4.0.0-rev1-build1.3")
			g.pullByCRI("4.0.0-rev1")
			g.collectGarbage()
			if version == node.Containerd16 {
				g.isLost("4.0.0-rev1-build1.3")
				g.Kubelet.Reconfigure(nil)
				story.Hangup(t, g.Node, g.daemon) // triggers an observation of the node
			}
			node.Eventually(t, "the release is staged", story.Ready, func() error { // after the reload
				if s := story.St(t, g.Node); s.State != status.StateStaged {
					return errors.New(s.Reason)
				}
				return nil
			})
			g.isKept("4.0.0-rev1-build1.3")
			g.isKept("4.0.0-rev1-build1.2")
			if version != node.Containerd16 {
				g.isKept("4.0.0-rev1-build1.1") // 1.6 lost the rollback target, but the registry still has it
			}
			assert.Equal(t, []string{"HEAD manifest"}, g.pullByCRI("4.0.0-rev1"))

			g.remove("4.0.0-rev1-build1.3")
			g.isLost("4.0.0-rev1-build1.3")
			story.Apply(t, g.Node, 0, "velum")
			g.WaitAnswer(g.port, "4.0.0-rev1-build1.3")
			assert.Equal(t, 0, g.daemon.Stop().Code)
			g.isKept("4.0.0-rev1-build1.3")
			g.isKept("4.0.0-rev1-build1.2")
		})
	}
}

// crowded is a node with little space for images. velum runs its second release; the first is the rollback target, the
// third is staged. No pod uses demo/foreign.
type crowded struct {
	*imagesRig
	daemon   *node.Process
	port     int
	releases map[string]release.Release // by long tag
}

func newCrowded(t *testing.T, version node.Version) *crowded {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: version, Kubelet: true, ImageSpace: gcSpace})
	g := &crowded{imagesRig: rigOf(t, n), port: n.FreePort(), releases: map[string]release.Release{}}
	n.WriteFile(story.ConfigFile, "disk:\n  reserve: 0\n  reservePercent: 0\n")
	story.Template(n, g.port, n.Registry.Ref("demo/velum:__TAG__"))
	g.next("4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	n.WaitAnswer(g.port, "4.0.0-rev1-build1.1")
	g.daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	g.next("4.0.0-rev1-build1.2")
	story.Check(t, n)
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(g.port, "4.0.0-rev1-build1.2")
	g.next("4.0.0-rev1-build1.3")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	for tag := range g.releases {
		g.isKept(tag)
	}
	g.publish("demo/foreign", "1.0.0-rev1-build1.1", node.Image{})
	return g
}

// rigOf returns a rig for a node that already runs.
func rigOf(t *testing.T, n *node.Node) *imagesRig {
	r := &imagesRig{Node: n, t: t, client: n.Containerd.Client(), cri: n.CRI()}
	r.store = r.open()
	return r
}

// next publishes a release of velum.
func (g *crowded) next(long string) {
	g.releases[long] = g.publish("demo/velum", long, node.Image{})
}

// pullByCRI pulls a tag of velum as kubelet does, and returns the requests that the registry got. CRI's pull resets the
// labels of the tag's record.
func (g *crowded) pullByCRI(tag string) (asked []string) {
	g.t.Helper()
	g.Registry.Forget()
	_, err := g.cri.Pull(g.Registry.Ref("demo/velum:" + tag))
	require.NoError(g.t, err)
	for _, r := range g.Registry.Requests() {
		asked = append(asked, r.Method+" "+string(r.Kind))
	}
	return asked
}

// collectGarbage makes kubelet collect images until it has removed the foreign one and has visited all others in the
// same round.
func (g *crowded) collectGarbage() {
	g.t.Helper()
	foreign := g.Registry.Ref("demo/foreign:1.0.0-rev1")
	_, err := g.cri.Pull(foreign)
	require.NoError(g.t, err)
	g.Kubelet.Reconfigure(pressure)
	rounds := func() int { return strings.Count(story.Output(g.t, g.Kubelet.Stderr), gcRound) }
	seen := 0
	node.Eventually(g.t, "foreign image collected", story.Ready, func() error {
		seen = rounds()
		answer, err := g.status(foreign)
		if err == nil && answer.GetImage() != nil {
			err = errors.New("still there")
		}
		return err
	})
	node.Eventually(g.t, "end of the round", story.Ready, func() error {
		if rounds() == seen {
			return errors.New("not yet")
		}
		return nil
	})
}

func (g *crowded) status(name string) (*cri.ImageStatusResponse, error) {
	return g.cri.Images.ImageStatus(g.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
}

// remove removes an image through CRI, as kubelet's garbage collection and crictl do.
func (g *crowded) remove(tag string) {
	g.t.Helper()
	answer, err := g.status(g.Registry.Ref("demo/velum:" + tag))
	require.NoError(g.t, err)
	_, err = g.cri.Images.RemoveImage(g.t.Context(), &cri.RemoveImageRequest{
		Image: &cri.ImageSpec{Image: answer.GetImage().GetId()},
	})
	require.NoError(g.t, err)
}

// isKept asserts that a release is complete: named, pinned, unpacked, all bytes present, and listed by CRI.
func (g *crowded) isKept(tag string) {
	g.t.Helper()
	release := g.releases[tag]
	names := g.records(release.Repository)
	assert.Equal(g.t, release.Digest, names[release.Repository+":"+tag], tag)
	g.assertContent(release)
	g.listed(g.pin(release).Name) // CRI learns of records by events, of the pin last
	answer, err := g.status(release.Repository + ":" + tag)
	require.NoError(g.t, err)
	require.NotNil(g.t, answer.GetImage(), tag)
	assert.Equal(g.t, g.Containerd.Version != node.Containerd16, answer.GetImage().GetPinned(), "%s: pinned", tag)
}

// isLost asserts that no part of a release is left, although the agent released no pin.
func (g *crowded) isLost(tag string) {
	g.t.Helper()
	held, err := g.store.Held(g.t.Context())
	require.NoError(g.t, err)
	for _, h := range held {
		assert.NotEqual(g.t, g.releases[tag].Digest, h.Digest, h.Name)
	}
}

// TestPinsEndWithTheirReason checks that the first cycle after a start removes the pins that have lost their reason,
// however long the agent was off. It keeps the pins of releases that it does not know, and keeps all pins while it does
// not know which images pods follow.
func TestPinsEndWithTheirReason(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	r := rigOf(t, n)
	passed := r.publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
	velum := r.publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{})
	removed := r.publish("demo/removed", "1.0.0-rev1-build1.1", node.Image{})
	listed := r.publish("demo/listed", "1.0.0-rev1-build1.1", node.Image{})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(story.TemplateDir+"removed.yaml", story.PodYAML("removed", removed.Repository+":"+removed.Tag))
	n.WriteFile(story.ConfigFile, "images:\n- "+listed.Repository+":"+listed.Tag+"\n")
	story.Cycle(t, n, 0)
	assert.ElementsMatch(t, pinsOf(velum, removed, listed), r.pinned())

	former := r.publish("demo/former", "1.0.0-rev1-build1.1", node.Image{})
	r.stage(passed)
	r.stage(former)
	foreign := r.foreign(velum)
	for _, name := range []string{story.ManifestDir, story.TemplateDir} {
		require.NoError(t, os.Remove(n.Path(name+"removed.yaml")))
	}
	n.WriteFile(story.ConfigFile, "")
	r.Registry.Down()
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	assert.Equal(t, pinsOf(velum), r.pinned())
	r.stillThere(foreign)
	assert.Equal(t, 0, daemon.Stop().Code)

	// Without a record, and without a registry.
	r.Registry.Up()
	r.stage(former)
	r.Registry.Down()
	require.NoError(t, os.RemoveAll(n.Path("var/lib/image-update-agent")))
	daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	assert.ElementsMatch(t, pinsOf(velum, former), r.pinned())
	r.Registry.Up()
	next := r.publish("demo/velum", "4.0.0-rev1-build1.3", node.Image{})
	story.Check(t, n)
	assert.Equal(t, pinsOf(next), r.pinned())
	r.stillThere(foreign)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// pinned returns our pins.
func (r *imagesRig) pinned() (pins []release.Pin) {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	for _, h := range held {
		if h.Pin {
			pins = append(pins, release.Pin{Repository: h.Repository, Digest: h.Digest})
		}
	}
	return pins
}

func pinsOf(releases ...release.Release) (pins []release.Pin) {
	for _, r := range releases {
		pins = append(pins, release.Pin{Repository: r.Repository, Digest: r.Digest})
	}
	return pins
}

// foreign returns records that are not ours: one pinned by another program, one with a name like that of our pins, and
// one that kubelet pulled.
func (r *imagesRig) foreign(like release.Release) []containerdimages.Image {
	r.t.Helper()
	ours, err := r.client.ImageService().Get(r.t.Context(), r.pin(like).Name)
	require.NoError(r.t, err)
	_, err = r.cri.Pull(like.Repository + ":" + like.Tag)
	require.NoError(r.t, err)
	pulled, err := r.client.ImageService().Get(r.t.Context(), like.Repository+":"+like.Tag)
	require.NoError(r.t, err)
	records := []containerdimages.Image{pulled}
	for name, labels := range map[string]map[string]string{
		"registry.example.com/theirs:1":   {"io.cri-containerd.pinned": "pinned"},
		story.PinHost + "somebody/else:1": ours.Labels,
	} {
		record, err := r.client.ImageService().Create(r.t.Context(),
			containerdimages.Image{Name: name, Target: ours.Target, Labels: labels})
		require.NoError(r.t, err)
		records = append(records, record)
	}
	return records
}

func (r *imagesRig) stillThere(records []containerdimages.Image) {
	r.t.Helper()
	for _, want := range records {
		now, err := r.client.ImageService().Get(r.t.Context(), want.Name)
		require.NoError(r.t, err)
		assert.Equal(r.t, want.Target, now.Target)
		assert.Equal(r.t, want.Labels["io.cri-containerd.pinned"], now.Labels["io.cri-containerd.pinned"], want.Name)
	}
}
