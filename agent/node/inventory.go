// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Inventory is what the pod manifests ask for and what really is on the node.
// It is read anew in each cycle and never kept.
type Inventory struct {
	Templates    []PodFile
	PodManifests []PodFile
	Waiting      []PodFile
	Containers   []Container
	Used         []digest.Digest // image ids of all containers of the node
	Held         []HeldImage
	// Wanting is what releases need for which there was no room ("repository@digest"),
	// and Filesystem the room there is now; both empty where all had room.
	Wanting    map[string]policy.SpaceNeeded
	Filesystem policy.Filesystem
	NodeName   string        // what kubelet appends to the names of static pods; empty: not known
	BusyGrain  string        // that says so; empty: nobody knows
	Busy       string        // why another operation may own the node; empty: none does
	Against    []status.Hold // what the node has against restarting a pod now; asked where one is to be
	// Missing is since when containers ("file/container") are missed that CRI does not
	// show; Unstarted, what kubelet says of those that it does not start.
	Missing   map[string]time.Time
	Unstarted []Waiting
}

// Find returns the file of that name, nil where there is none.
func Find(files []PodFile, name string) *PodFile {
	for i := range files {
		if files[i].Name == name {
			return &files[i]
		}
	}
	return nil
}

// Staged reports whether the release is complete, unpacked and pinned.
func (inv Inventory) Staged(r release.Release) bool {
	for _, h := range inv.Held {
		if h.Pin && h.Complete && h.Repository == r.Repository && h.Digest == r.Digest {
			return true
		}
	}
	return false
}

// PodContainers gives the containers of the static pod of that name. kubelet
// names it <pod>-<node>. Where the configuration does not say the node's name, which
// may differ from the host's, the pod is the one with the longest name that fits, of
// all pods known: then one whose file has just gone may be taken for another, as
// velum-db-node1 for the pod velum of a node db-node1. Beside the pod
// that runs, kubelet keeps the dead containers of what it was before: sandboxes
// in which nothing runs do not count then.
func (inv Inventory) PodContainers(namespace, pod string, all []string) []Container {
	var out []Container
	live := map[string]bool{}
	for _, c := range inv.Containers {
		if c.Namespace == namespace && inv.Owner(c.Pod, all) == pod {
			out = append(out, c)
			if c.Running {
				live[c.Sandbox] = true
			}
		}
	}
	if len(live) == 0 {
		return out
	}
	return slices.DeleteFunc(out, func(c Container) bool { return !live[c.Sandbox] })
}

// Owner is the one of names that a CRI pod belongs to; empty: none. The name alone is
// no static pod's: kubelet always appends the node's.
func (inv Inventory) Owner(criPod string, names []string) string {
	if pod, ok := strings.CutSuffix(criPod, "-"+inv.NodeName); ok && inv.NodeName != "" {
		if slices.Contains(names, pod) {
			return pod
		}
		return ""
	}
	best := ""
	for _, n := range names {
		if strings.HasPrefix(criPod, n+"-") && len(n) > len(best) {
			best = n
		}
	}
	return best
}

// FindContainer gives the named container: the one that runs, else the one that
// was started last.
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

// DigestOf is the digest of what a container runs: of those that CRI has for
// the image the one that the image store holds, else through the image store,
// which may hold the image under a name that CRI has no repository digest for.
// Empty where neither knows.
func DigestOf(c *Container, held []HeldImage) digest.Digest {
	for _, d := range c.Digests {
		if slices.ContainsFunc(held, func(h HeldImage) bool { return h.Digest == d }) {
			return d
		}
	}
	for _, h := range held {
		if h.Config != "" && h.Config == c.Image {
			return h.Digest
		}
	}
	if len(c.Digests) > 0 {
		return c.Digests[0]
	}
	return ""
}

// Has reports whether the node has a digest, pinned or not.
func (inv Inventory) Has(dg digest.Digest) bool {
	return slices.ContainsFunc(inv.Held, func(h HeldImage) bool { return h.Digest == dg })
}

// Digests are the digests that the node has, and the pins.
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
