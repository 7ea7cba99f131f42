// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// NodeName is what kubelet appends to the names of static pods.
const NodeName = "node1"

// Node is a node in memory: image store, container runtime with a small
// kubelet, and the directories. It implements node.Images, node.Pods and
// node.PodFiles. Safe for concurrent use. What kubelet has to do it does
// within the call that causes it, unless Kubelet is off.
type Node struct {
	// Kubelet turns kubelet on; Sync does by hand what it would do.
	Kubelet bool
	// Now is the node's clock.
	Now func() time.Time
	// OnStage and OnStop, if set, may fail these calls.
	OnStage func(ctx context.Context, r release.Release) error
	OnStop  func(id string) error
	// OnAside, if set, may fail the setting aside of a pod manifest after it was done.
	OnAside func(name string) error
	// Filled, if set, may end a pull in its middle.
	Filled func(r release.Release) error
	// Unlisted is for how many questions more CRI has not heard of any image.
	Unlisted int
	// Others are the image ids of containers that are not of static pods.
	Others []digest.Digest
	// Unmeasured, if set, fails the question for the image filesystem.
	Unmeasured error
	unseen     error

	mu        sync.Mutex
	registry  *Registry
	templates map[string]node.PodFile
	manifests map[string]node.PodFile
	waiting   map[string]node.PodFile
	aside     map[string]node.PodFile
	records   map[string]digest.Digest // image records by name, pins apart
	pins      map[release.Pin]bool
	lost      map[digest.Digest]bool // content that somebody took away
	crashing  map[digest.Digest]bool // images whose process ends at once
	pods      map[string]*pod        // by file name
	pages     map[string]string      // media types of records that name no image
	dead      []node.Container       // of pods that are gone, as long as kubelet keeps them
	staged    map[string]bool        // records with the name that staging gave
	disk      policy.Filesystem

	prunedInUse []string
	made        int
	fetched     int
	restarts    map[string]int // starts of containers, by "file/container"
	hearers     map[chan watch.RuntimeEvent]bool
	ownHost     *ownHost // nil: the node has none
}

var (
	_ node.Images   = (*Node)(nil)
	_ node.Pods     = (*Node)(nil)
	_ node.PodFiles = (*Node)(nil)

	_ watch.RuntimeEvents = (*Node)(nil)
)

// NewNode is an empty node whose images come from the registry.
func NewNode(r *Registry) *Node {
	return &Node{
		Kubelet: true, Now: time.Now, registry: r,
		templates: map[string]node.PodFile{}, manifests: map[string]node.PodFile{}, waiting: map[string]node.PodFile{},
		aside:   map[string]node.PodFile{},
		records: map[string]digest.Digest{}, pins: map[release.Pin]bool{}, lost: map[digest.Digest]bool{},
		crashing: map[digest.Digest]bool{}, pages: map[string]string{}, pods: map[string]*pod{}, restarts: map[string]int{},
		hearers: map[chan watch.RuntimeEvent]bool{},
		staged:  map[string]bool{}, disk: policy.Filesystem{Path: "/var/lib/containerd", Size: 100 << 30, Free: 80 << 30},
	}
}

// PutTemplate ships a template; nil data takes it away.
func (n *Node) PutTemplate(name string, data []byte) { n.put(n.templates, name, data) }

// PutPodManifest edits kubelet's directory by hand; nil data deletes the file.
func (n *Node) PutPodManifest(name string, data []byte) {
	n.put(n.manifests, name, data)
	n.changed()
}

// PutBroken has a pod manifest that must not be read.
func (n *Node) PutBroken(name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.manifests[name] = node.PodFile{Name: name, Err: err}
}

// PutFollowed has a pod manifest that kubelet reads and that must not be written; or, without data, one that kubelet
// passes over.
func (n *Node) PutFollowed(name string, err error, data []byte) {
	n.mu.Lock()
	n.manifests[name] = node.PodFile{Name: name, Err: err, Followed: data, PassedOver: data == nil}
	n.mu.Unlock()
	n.changed()
}

func (n *Node) put(files map[string]node.PodFile, name string, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if data == nil {
		delete(files, name)
		return
	}
	files[name] = node.PodFile{Name: name, Data: bytes.Clone(data)}
}

// PodManifest is a file of kubelet's directory, "" where there is none.
func (n *Node) PodManifest(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.manifests[name].Data)
}

// WaitingFile is a rendered file that waits for approval, "" where none does.
func (n *Node) WaitingFile(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.waiting[name].Data)
}

// Templates answers as node.PodFiles.
func (n *Node) Templates(context.Context) ([]node.PodFile, error) { return n.list(n.templates), nil }

// PodManifests answers as node.PodFiles.
func (n *Node) PodManifests(context.Context) ([]node.PodFile, error) {
	return n.list(n.manifests), nil
}

// Waiting answers as node.PodFiles.
func (n *Node) Waiting(context.Context) ([]node.PodFile, error) { return n.list(n.waiting), nil }

func (n *Node) list(files map[string]node.PodFile) []node.PodFile {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []node.PodFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		f.Data = bytes.Clone(f.Data)
		out = append(out, f)
	}
	return out
}

// Write answers as node.PodFiles.
func (n *Node) Write(_ context.Context, was node.PodFile, data []byte) error {
	n.mu.Lock()
	if err := n.unchanged(was); err != nil {
		n.mu.Unlock()
		return err
	}
	n.manifests[was.Name] = node.PodFile{Name: was.Name, Data: bytes.Clone(data)}
	n.mu.Unlock()
	n.changed()
	return nil
}

// Remove answers as node.PodFiles.
func (n *Node) Remove(_ context.Context, was node.PodFile) error {
	n.mu.Lock()
	if err := n.unchanged(was); err != nil {
		n.mu.Unlock()
		return err
	}
	delete(n.manifests, was.Name)
	n.mu.Unlock()
	n.changed()
	return nil
}

func (n *Node) unchanged(was node.PodFile) error {
	is, ok := n.manifests[was.Name]
	if ok != (was.Data != nil) || !bytes.Equal(is.Data, was.Data) {
		return fmt.Errorf("%s: %w", was.Name, release.ErrConflict)
	}
	return nil
}

// Keep answers as node.PodFiles.
func (n *Node) Keep(_ context.Context, name string, data []byte) error {
	n.put(n.waiting, name, data)
	return nil
}

func (n *Node) changed() {
	n.mu.Lock()
	on := n.Kubelet
	n.mu.Unlock()
	if on {
		n.Sync()
	}
}

// names are the image records' names that hold a digest.
func (n *Node) names(d digest.Digest) []string {
	var out []string
	for name, target := range n.records {
		if target == d {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Blind fails every look at the runtime, until nil: containerd is down.
func (n *Node) Blind(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unseen = err
}

func (n *Node) id(what string) string {
	n.made++
	return fmt.Sprintf("%s-%d", what, n.made)
}

// Container is what runs as a container of a pod manifest.
func (n *Node) Container(file, name string) (node.Container, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[file]
	if !ok || p.containers[name] == nil {
		return node.Container{}, false
	}
	return *p.containers[name], true
}

// Starts counts how often a container of a pod manifest was started.
func (n *Node) Starts(file, container string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.restarts[file+"/"+container]
}
