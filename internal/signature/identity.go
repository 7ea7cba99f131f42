// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// owner is the repository whose signature is wanted, with the rewrites of the
// configuration. Where one of them has led to a mirror's name, the publisher
// still signs for his own.
type owner struct {
	repository string // normalised
	rewrites   []manifests.Rewrite
}

// identifies compares an identity with the owner. podman adds the tag that it
// pushed: which tag an image has is no part of what is asked here.
func (o owner) identifies(identity string, d digest.Digest) error {
	named, err := reference.ParseNormalizedNamed(identity)
	if err != nil || !strings.Contains(identity, "/") {
		return fmt.Errorf("identity %q: no repository", outside.Text(identity))
	}
	if named.Name() != o.repository && !o.rewrittenFrom(named) {
		return fmt.Errorf("identity %q: not %s", outside.Text(identity), o.repository)
	}
	if digested, ok := named.(reference.Digested); ok && digested.Digest() != d {
		return errors.New("identity: is of another digest")
	}
	return nil
}

// rewrittenFrom tells whether rendering makes the owner's repository of a name:
// the same rewrites, in the same order, so that none is read backwards.
func (o owner) rewrittenFrom(named reference.Named) bool {
	for _, name := range spellings(named) {
		to, err := release.NormalizeRepository(manifests.Rewritten(name, o.rewrites))
		if err == nil && to == o.repository {
			return true
		}
	}
	return false
}

// spellings are the ways to write a repository in a pod manifest, which rewrites
// take as it is written: names of docker.io may leave out the host, or "library".
func spellings(named reference.Named) []string {
	const host, library = "docker.io/", "library/"
	path, found := strings.CutPrefix(named.Name(), host)
	if !found {
		return []string{named.Name()}
	}
	paths := []string{path}
	if short, ok := strings.CutPrefix(path, library); ok {
		paths = append(paths, short)
	}
	var all []string
	for _, path := range paths {
		all = append(all, host+path, path, "index."+host+path)
	}
	return all
}
