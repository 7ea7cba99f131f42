// SPDX-License-Identifier: Apache-2.0

// Package node observes the node: its pod manifests, containers and images. An Inventory is one
// observation; it parses each pod manifest once, by content. ports.go holds the ports to the
// node's runtime, image store and directories.
package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Inventory is one observation of the node. Each cycle creates a new one.
type Inventory struct {
	Templates    []PodFile
	PodManifests []PodFile
	Waiting      []PodFile
	Containers   []Container
	Used         []digest.Digest // image ids of all containers of the node
	Held         []HeldImage
	// BlockedBySpace are the releases without enough disk space, by "repository@digest", with the space that they need;
	// Filesystem is the current space. Both are empty if no release is blocked.
	BlockedBySpace map[string]policy.SpaceNeeded
	Filesystem     policy.Filesystem
	NodeName       string        // kubelet appends it to the names of static pods; empty: unknown
	BusyGrain      string        // the grain in Busy; empty if Busy has another cause
	Busy           string        // why another operation may own the node; empty if none does
	RestartHolds   []status.Hold // why the node must not restart a pod now; set only if the plan may restart one
	// Missing is since when CRI has not shown expected containers, by "file/container". Unstarted are the containers
	// that kubelet does not start.
	Missing   map[string]time.Time
	Unstarted []Waiting
	Catalog   catalog.Listing // the last verified one
	// Gated are kubelet's answers for tags of registries whose first host is the node's local registry.
	Gated map[release.Reference]digest.Digest
}

// Find returns the file with that name, nil if there is none.
func Find(files []PodFile, name string) *PodFile {
	for i := range files {
		if files[i].Name == name {
			return &files[i]
		}
	}
	return nil
}

// ByName returns the files by their names.
func ByName(files []PodFile) map[string]*PodFile {
	out := make(map[string]*PodFile, len(files))
	for i := range files {
		out[files[i].Name] = &files[i]
	}
	return out
}

// FindContainer returns the running container with a name, else the one that started last.
func FindContainer(all []Container, name string) *Container {
	var best *Container
	for i := range all {
		c := &all[i]
		switch {
		case c.Name != name:
		case best == nil, c.Running && !best.Running,
			c.Running == best.Running && !c.StartedAt.Before(best.StartedAt):
			best = c
		}
	}
	return best
}

// Digests returns the digests that the node has, and the pinned ones.
func (inv Inventory) Digests() (digests map[digest.Digest]bool, pins map[release.Pin]bool) {
	digests, pins = map[digest.Digest]bool{}, map[release.Pin]bool{}
	for _, h := range inv.Held {
		digests[h.Digest] = true
		if h.Pin {
			pins[release.Pin{Repository: h.Repository, Digest: h.Digest}] = true
		}
	}
	return digests, pins
}

// OrphanedAliases returns the records that CRI made for a pruned image: repository@digest and the image ID. They stay
// if another name has the same digest.
func (inv Inventory) OrphanedAliases(gone []HeldImage, aliases map[HeldImage]bool) []HeldImage {
	named, isGone := map[digest.Digest]bool{}, map[HeldImage]bool{}
	for _, h := range gone {
		isGone[h] = true
	}
	var out []HeldImage
	for _, h := range inv.Held {
		switch {
		case h.Pin, isGone[h]:
		case aliases[HeldImage{Name: h.Name, Digest: h.Digest}]:
			out = append(out, h)
		default:
			named[h.Digest] = true
		}
	}
	return slices.DeleteFunc(out, func(h HeldImage) bool { return named[h.Digest] })
}

// Observer observes the node. An observation is complete or an error: in a partial one a running pod could look absent.
type Observer struct {
	Files    PodFileReader
	Pods     ContainerLister
	Images   ImageRecords
	Busy     func(context.Context) (grain string, err error) // the grain with which another operation owns the node
	NodeName string
	State    *State
}

// State is the state that one observation passes to the next.
type State struct {
	Missing map[string]time.Time // since when, by "file/container"
	Parsed  parsedFiles
}

// Parse parses pod manifests that were read after the observation; those that it has seen are not parsed again.
func (s *State) Parse(files []PodFile) {
	if s.Parsed == nil {
		s.Parsed = parsedFiles{}
	}
	parseAll(files, s.Parsed, s.Parsed)
}

// ObserveBusy asks whether another operation owns the node.
func (o Observer) ObserveBusy(ctx context.Context, inv *Inventory) {
	var err error
	if inv.BusyGrain, err = o.Busy(ctx); err != nil {
		inv.Busy = err.Error() // an unknown node counts as busy
	} else if inv.BusyGrain != "" {
		inv.Busy = "the grain " + inv.BusyGrain + " is true"
	}
}

// ObserveFiles reads the directories of pod manifests.
func (o Observer) ObserveFiles(ctx context.Context) (Inventory, error) {
	inv := Inventory{NodeName: o.NodeName}
	var err error
	if inv.Templates, err = o.Files.Templates(ctx); err != nil {
		return inv, fmt.Errorf("templates: %w", err)
	}
	if inv.PodManifests, err = o.Files.PodManifests(ctx); err != nil {
		return inv, fmt.Errorf("pod manifests: %w", err)
	}
	if inv.Waiting, err = o.Files.Waiting(ctx); err != nil {
		return inv, fmt.Errorf("rendered pod manifests: %w", err)
	}
	o.ObserveBusy(ctx, &inv)
	inv.Missing = o.State.Missing
	now := parsedFiles{}
	parseAll(inv.Templates, o.State.Parsed, now)
	parseAll(inv.PodManifests, o.State.Parsed, now)
	o.State.Parsed = now
	return inv, nil
}

// ObserveRuntime adds the containers and the images of the node.
func (o Observer) ObserveRuntime(ctx context.Context, inv *Inventory) error {
	var err error
	if inv.Containers, inv.Used, err = o.Pods.Containers(ctx); err != nil {
		return fmt.Errorf("containers: %w", err)
	}
	if inv.Held, err = o.Images.Held(ctx); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
}

// HeldIndex finds the image records of an inventory. It is made once for all images.
type HeldIndex struct {
	byName   map[string]HeldImage
	byConfig map[digest.Digest]digest.Digest // the first record's
	origins  map[digest.Digest]string        // "" if the label is missing, or unknown
	staged   map[release.Pin]bool
	readable map[digest.Digest]bool
}

// Index returns an index of the image records.
func (inv Inventory) Index() HeldIndex {
	x := HeldIndex{
		make(map[string]HeldImage, len(inv.Held)),
		map[digest.Digest]digest.Digest{},
		make(map[digest.Digest]string, len(inv.Held)),
		map[release.Pin]bool{},
		map[digest.Digest]bool{},
	}
	for _, h := range inv.Held {
		x.byName[h.Name] = h
		if _, known := x.byConfig[h.Config]; !known && h.Config != "" {
			x.byConfig[h.Config] = h.Digest
		}
		if x.origins[h.Digest] == "" {
			x.origins[h.Digest] = h.Origin
		}
		x.readable[h.Digest] = x.readable[h.Digest] || h.Config != ""
		if h.Pin && h.Complete {
			x.staged[release.Pin{Repository: h.Repository, Digest: h.Digest}] = true
		}
	}
	return x
}

// Named returns the image record with a name.
func (x HeldIndex) Named(name string) (h HeldImage, is bool) {
	h, is = x.byName[name]
	return h, is
}

// Staged reports whether a release is complete, unpacked and pinned.
func (x HeldIndex) Staged(r release.Release) bool {
	return x.staged[release.Pin{Repository: r.Repository, Digest: r.Digest}]
}

// Has reports whether the node has a digest, pinned or not.
func (x HeldIndex) Has(d digest.Digest) bool {
	_, is := x.origins[d]
	return is
}

// IsReadable reports whether the node can read the image of a digest.
func (x HeldIndex) IsReadable(d digest.Digest) bool { return x.readable[d] }

// OriginOf returns the repository in the label of an image on the node; empty if there is none, or if it is unknown.
func (x HeldIndex) OriginOf(d digest.Digest) string { return x.origins[d] }

// DigestOf returns the digest of a container's image; empty if unknown. It prefers CRI's digest if the image store has
// it, then the image store's record with the same config digest: CRI has no repository digest for some names.
func (x HeldIndex) DigestOf(c *Container) digest.Digest {
	for _, d := range c.Digests {
		if x.Has(d) {
			return d
		}
	}
	if d, known := x.byConfig[c.Image]; known {
		return d
	}
	if len(c.Digests) > 0 {
		return c.Digests[0]
	}
	return ""
}

// ByPod has the containers of an inventory by static pod. It is made once for all pods.
type ByPod struct {
	containers map[podID][]Container
	unstarted  map[podID][]Waiting
}

type podID struct{ namespace, name string }

// ByPod returns the containers of the static pods with these names. If a container of a pod runs, the ended containers
// that kubelet keeps from earlier sandboxes of the pod are left out.
func (inv Inventory) ByPod(names []string) ByPod {
	isPod := make(map[string]bool, len(names))
	for _, n := range names {
		isPod[n] = true
	}
	out := ByPod{map[podID][]Container{}, map[podID][]Waiting{}}
	live := map[podID]map[string]bool{} // sandboxes
	for _, c := range inv.Containers {
		id := podID{c.Namespace, inv.owner(c.Pod, isPod)}
		if id.name == "" {
			continue
		}
		out.containers[id] = append(out.containers[id], c)
		if c.Running {
			if live[id] == nil {
				live[id] = map[string]bool{}
			}
			live[id][c.Sandbox] = true
		}
	}
	for id, sandboxes := range live {
		out.containers[id] = slices.DeleteFunc(out.containers[id], func(c Container) bool { return !sandboxes[c.Sandbox] })
	}
	for _, w := range inv.Unstarted {
		id := podID{w.Namespace, inv.owner(w.Pod, isPod)}
		out.unstarted[id] = append(out.unstarted[id], w)
	}
	return out
}

// Containers returns the containers of a static pod.
func (b ByPod) Containers(namespace, pod string) []Container {
	return b.containers[podID{namespace, pod}]
}

// Unstarted returns the containers of a static pod that kubelet does not start.
func (b ByPod) Unstarted(namespace, pod string) []Waiting { return b.unstarted[podID{namespace, pod}] }

// owner returns the name of the static pod to which a CRI pod belongs; empty if there is none. kubelet names a static
// pod <pod>-<node>. Without the node's name, owner returns the longest name that fits. That may be wrong for a pod
// whose file was just removed: velum-db-node1 may be velum-db on node1, or velum on db-node1.
func (inv Inventory) owner(criPod string, isPod map[string]bool) string {
	if pod, ok := strings.CutSuffix(criPod, "-"+inv.NodeName); ok && inv.NodeName != "" {
		if isPod[pod] {
			return pod
		}
		return ""
	}
	for end := len(criPod); ; {
		if end = strings.LastIndexByte(criPod[:end], '-'); end < 0 || isPod[criPod[:end]] {
			return criPod[:max(end, 0)]
		}
	}
}

// RunsTarget returns the registry digest of a container's image, and whether it is the target's. Manifests with the
// same config digest, which CRI shows for each container, are the same image.
func (x HeldIndex) RunsTarget(c *Container, target release.Release) (d digest.Digest, same bool) {
	if c == nil || c.Image == "" {
		return "", false
	}
	if slices.Contains(c.Digests, target.Digest) {
		return target.Digest, true
	}
	d = x.DigestOf(c)
	switch {
	case d != "" && d == target.Digest:
		return d, true
	case target.Config == "" || c.Image != target.Config:
		return d, false
	case d == "":
		return target.Digest, true
	}
	return d, true
}
