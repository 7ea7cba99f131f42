// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Floating is the tag that a release of that name is followed by.
func Floating(tag string, d tags.Dialect) string {
	if t, err := d.Parse(tag); err == nil && t.Form() == tags.Long {
		if im, ok := t.Intermediate(); ok {
			return im.Wire()
		}
	}
	return tag
}

// Reference is a floating or a long tag in a repository. Repository is
// normalised as CRI normalises it: "sles12/velum" is
// "docker.io/sles12/velum". The zero value names nothing.
type Reference struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
}

// String is the reference as it stands in a pod manifest: repository:tag.
func (r Reference) String() string { return r.Repository + ":" + r.Tag }

// ParseReference reads "repository:tag"; the tag may be missing and then stays
// empty, for an agent never invents "latest".
func ParseReference(text string) (Reference, error) {
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

// NormalizeRepository gives the repository name that CRI and containerd use.
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

// IsPlaceholder reports whether a tag in a template waits for its value.
func IsPlaceholder(tag string) bool {
	return tag == "__TAG__" || strings.HasPrefix(tag, "%%")
}
