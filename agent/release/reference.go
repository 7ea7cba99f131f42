// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Floating returns the floating tag to follow for a tag: the intermediate tag of a long one.
func Floating(tag string, s tags.Scheme) string {
	if t, err := s.Parse(tag); err == nil && t.Form() == tags.Long {
		if im, ok := t.Intermediate(); ok {
			return im.String()
		}
	}
	return tag
}

// Reference is a tag in a repository. Repository is normalised as in CRI: "sles12/velum" is
// "docker.io/sles12/velum".
type Reference struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
}

// String returns the reference as in a pod manifest: repository:tag.
func (r Reference) String() string { return r.Repository + ":" + r.Tag }

// Tagged returns the reference with the tag that kubelet pulls if none is written.
func (r Reference) Tagged() Reference {
	r.Tag = cmp.Or(r.Tag, "latest")
	return r
}

// ParseReference parses "repository:tag". A missing tag stays empty and does not become "latest".
func ParseReference(text string) (Reference, error) {
	if r, is := parseUsual(text); is {
		return r, nil
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Reference{}, outside.Error(fmt.Errorf("reference %q: %w", outside.Text(text), err))
	}
	r := Reference{Repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		r.Tag = tagged.Tag()
	}
	return r, nil
}

// NormalizeRepository returns the repository name of CRI and containerd.
func NormalizeRepository(name string) (string, error) {
	r, err := ParseReference(name)
	if err != nil {
		return "", err
	}
	if r.Tag != "" {
		return "", fmt.Errorf("repository %q: has a tag", name)
	}
	return r.Repository, nil
}

// IsPlaceholder reports whether a tag of a template is a placeholder.
func IsPlaceholder(tag string) bool {
	return tag == "__TAG__" || strings.HasPrefix(tag, "%%")
}
