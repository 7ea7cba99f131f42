// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// unmarshal parses unambiguous JSON: one value, and no object with two keys that Go treats as equal. Unless open is
// set, it rejects keys that v does not have.
func unmarshal(data []byte, v any, open bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := unambiguous(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("json: more than one value")
	}
	d = json.NewDecoder(bytes.NewReader(data))
	if !open {
		d.DisallowUnknownFields()
	}
	return d.Decode(v)
}

// unambiguous reads one value and compares the keys of each object case-insensitively, as Go does.
func unambiguous(d *json.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("json: over %d levels", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	keys := map[string]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return fmt.Errorf("json: %w", err)
			}
			folded := strings.ToLower(strings.ToUpper(fmt.Sprint(name)))
			if keys[folded] {
				return fmt.Errorf("json: ambiguous: two keys %q", outside.Text(folded))
			}
			keys[folded] = true
		}
		if err := unambiguous(d, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("json: %w", err)
	}
	return nil
}
