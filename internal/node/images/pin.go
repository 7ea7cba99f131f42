// SPDX-License-Identifier: Apache-2.0

package images

import (
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// pinHost is the registry host in the names of pins. CRI lists every record, so a pin must parse as a reference; no
// registry can own a name in ".local".
const pinHost = "pin.image-update-agent.local"

// maxHex is the length of a digest in a pin's name: all of a SHA-256. A SHA-512 would fill the 128 characters of a tag.
const maxHex = 64

const (
	// labelManaged stops CRI from adding a record for the config digest, which no program
	// would remove.
	labelManaged, managed = "io.cri-containerd.image", "managed"
	// labelPinned protects from kubelet's garbage collector (containerd 1.7 and later).
	labelPinned, pinned = "io.cri-containerd.pinned", "pinned"
	// labelRepository holds the repository of a pin.
	labelRepository = "org.opensuse.image-update-agent/repository"
	// labelStaged has the repository of a record that staging wrote and pruning may remove. A CRI pull of the same name
	// removes the label: then the record is CRI's.
	labelStaged = "org.opensuse.image-update-agent/staged"
	// labelStage has the release of a lease of the agent.
	labelStage = "org.opensuse.image-update-agent/stage"
)

// pinName returns the name of a pin: unique, and a reference that CRI accepts.
func pinName(repository string, d digest.Digest) string {
	return pinHost + "/" + pinPath(repository) + ":" + pinTag(d)
}

// pinPath converts a repository to a path. The colon of a port becomes "_", which paths may contain and host names do
// not. Names that are not valid paths (upper case, an IPv6 address, a long name) are hashed, and so is a "host" with a
// "_". No host is called "hashed": the host of a normalised repository has a dot or a port, or is "localhost".
func pinPath(repository string) string {
	host, _, _ := strings.Cut(repository, "/")
	path := strings.Replace(repository, ":", "_", 1)
	name := pinHost + "/" + path
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || named.String() != name || strings.Contains(host, "_") ||
		len(name) > reference.RepositoryNameTotalLengthMax {
		return "hashed/" + digest.FromString(repository).Encoded()
	}
	return path
}

func pinTag(d digest.Digest) string {
	hex := d.Encoded()
	return d.Algorithm().String() + "-" + hex[:min(len(hex), maxHex)]
}

// pinRecord returns the record of a pin on target.
func pinRecord(repository string, target images.Image) images.Image {
	return images.Image{
		Name:   pinName(repository, target.Target.Digest),
		Target: target.Target,
		Labels: map[string]string{labelManaged: managed, labelPinned: pinned, labelRepository: repository},
	}
}

// pinOf reads a record. It is a pin only if name, label and target agree, because labels can be copied.
func pinOf(record images.Image) (release.Pin, bool) {
	repository, ok := record.Labels[labelRepository]
	d := record.Target.Digest
	if !ok || d.Validate() != nil || record.Name != pinName(repository, d) {
		return release.Pin{}, false
	}
	return release.Pin{Repository: repository, Digest: d}, true
}

// stagedOf reads a record. It was written by staging only if label and name agree, because labels can be copied.
func stagedOf(record images.Image) (repository string, ok bool) {
	repository, ok = record.Labels[labelStaged]
	if !ok {
		return "", false
	}
	r := release.Release{Repository: repository, Digest: record.Target.Digest}
	if long, tagged := strings.CutPrefix(record.Name, repository+":"); tagged {
		r.Long = long
	}
	if checkRelease(r) != nil || r.StagedName() != record.Name {
		return "", false
	}
	return repository, true
}
