// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// owner is the repository whose signature is required, with the configured rewrites: a publisher signs the name before
// a rewrite.
type owner struct {
	repository string // normalised
	rewrites   []manifests.Rewrite
}

// checkIdentity compares an identity with the owner. It ignores the tag that podman adds.
func (o owner) checkIdentity(identity string, d digest.Digest) error {
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

// rewrittenFrom reports whether the rewrites map a name to the owner's repository.
func (o owner) rewrittenFrom(named reference.Named) bool {
	for _, name := range spellings(named) {
		to, err := release.NormalizeRepository(manifests.Rewritten(name, o.rewrites))
		if err == nil && to == o.repository {
			return true
		}
	}
	return false
}

// spellings returns the spellings of a repository in a pod manifest: names of docker.io may omit the host, or
// "library".
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
