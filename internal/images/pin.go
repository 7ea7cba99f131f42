// SPDX-License-Identifier: Apache-2.0

package images

import (
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// pinHost is the registry that the names of pins pretend to be from. CRI lists
// every record, so a pin must parse as a reference; ".local" keeps anybody
// from owning the name.
const pinHost = "pin.image-update-agent.local"

// hexKept is how much of a digest goes into a pin's name: all of a SHA-256. A
// tag has 128 characters, and a SHA-512 alone would fill them.
const hexKept = 64

const (
	// labelManaged tells CRI that the record has been taken in already; without
	// it CRI adds a record of its own for the config digest, which nobody would
	// ever remove.
	labelManaged, managed = "io.cri-containerd.image", "managed"
	// labelPinned keeps kubelet's garbage collector away (containerd 1.7 and
	// later; 1.6 does not know it).
	labelPinned, pinned = "io.cri-containerd.pinned", "pinned"
	// labelRepository holds the repository that a pin is for, exactly.
	labelRepository = "org.opensuse.image-update-agent/repository"
	// labelStaged holds the repository of a record that has the name that staging
	// gave: ours to remove. A CRI pull of that name wipes it, and from then on the
	// name is somebody else's.
	labelStaged = "org.opensuse.image-update-agent/staged"
	// labelStage marks our leases with the release that is being staged.
	labelStage = "org.opensuse.image-update-agent/stage"
)

// pinName is the name of the pin of a digest in a repository: different for
// different pins, and a reference that CRI takes as it stands.
func pinName(repository string, d digest.Digest) string {
	return pinHost + "/" + pinPath(repository) + ":" + pinTag(d)
}

// pinPath makes a repository a path. The colon of a port becomes "_", which
// paths may contain and host names do not. What a path cannot hold (upper
// case, an IPv6 address, a name too long) is hashed, and so is a "host" with a
// "_" that the grammar lets through; "hashed" is nobody's host, for a normalised
// repository begins with a name that has a dot or a port, or with "localhost".
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
	return d.Algorithm().String() + "-" + hex[:min(len(hex), hexKept)]
}

// pinRecord is the record of a pin on target.
func pinRecord(repository string, target images.Image) images.Image {
	return images.Image{
		Name:   pinName(repository, target.Target.Digest),
		Target: target.Target,
		Labels: map[string]string{labelManaged: managed, labelPinned: pinned, labelRepository: repository},
	}
}

// pinOf reads a record. Only what has the name, the label and the target that
// we would have given it is ours: everything else is somebody else's, whatever
// it calls itself.
func pinOf(record images.Image) (release.Pin, bool) {
	repository, ok := record.Labels[labelRepository]
	d := record.Target.Digest
	if !ok || d.Validate() != nil || record.Name != pinName(repository, d) {
		return release.Pin{}, false
	}
	return release.Pin{Repository: repository, Digest: d}, true
}

// stagedOf reads a record. Only what staging itself would call so, for the
// repository that the label names, is ours: a label can be copied.
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
