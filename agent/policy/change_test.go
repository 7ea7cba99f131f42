// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestChangeOf(t *testing.T) {
	t.Parallel()
	const repository = "registry.suse.com/caasp/v4/velum"
	for name, c := range map[string]struct {
		disk, target string
		known, same  bool
		want         string
	}{
		"no pod yet":                           {"", "4.0.0-rev1", false, false, ""},
		"the same":                             {"4.0.0-rev1", "4.0.0-rev1", true, true, ""},
		"the same tag, another digest":         {"4.0.0-rev1", "4.0.0-rev1", true, false, "rebuild"},
		"the same tag, nothing is known":       {"4.0.0-rev1", "4.0.0-rev1", false, false, ""},
		"another name for what runs":           {"4.0.0", "4.0.0-rev1", true, true, "convert"},
		"another name, nothing is known":       {"4.0.0", "4.0.0-rev1", false, false, "convert"},
		"the short tag moved on under the pod": {"4.0.0", "4.0.0-rev1", true, false, "revision"},
		"the build moved on under the pod":     {"4.0.0-rev1-build1.1", "4.0.0-rev1", true, false, "rebuild"},
		"a newer long tag":                     {"4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2", true, false, "rebuild"},
		"a newer revision":                     {"4.0.0-rev1", "4.0.0-rev2", true, false, "revision"},
		"a newer revision, nothing is known":   {"4.0.0-rev1", "4.0.0-rev2", false, false, "revision"},
		"a newer patch":                        {"4.0.0-rev1", "4.0.1-rev1", true, false, "patch"},
		"a newer minor":                        {"4.0.0-rev1", "4.1.0-rev1", true, false, "minor"},
		"a newer major":                        {"4.0.0-rev1", "5.0.0-rev1", true, false, "major"},
		"a lower one":                          {"4.0.1-rev1", "4.0.0-rev1", true, false, "major"},
		"a newer name of what runs":            {"4.0.0-rev1", "4.0.1-rev1", true, true, "convert"},
		"another spelling":                     {"v4.0.0-rev1", "4.0.0-rev1", true, false, "major"},
		"from an unrecognized tag":             {"latest", "4.0.0-rev1", true, false, "major"},
		"to an unrecognized tag":               {"4.0.0-rev1", "latest", true, false, "major"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var disk release.Reference
			if c.disk != "" {
				disk = release.Reference{Repository: repository, Tag: c.disk}
			}
			target := release.Release{Repository: repository, Tag: c.target}
			assert.Equal(t, c.want, policy.ChangeOf(disk, target, c.known, c.same, tags.Scheme{}))
		})
	}
	moved := release.Reference{Repository: "m.local/velum", Tag: "4.0.0-rev1"}
	target := release.Release{Repository: repository, Tag: "4.0.0-rev1"}
	assert.Equal(t, "convert", policy.ChangeOf(moved, target, true, true, tags.Scheme{}), "the same image from elsewhere")
	assert.Equal(t, "rebuild", policy.ChangeOf(moved, target, true, false, tags.Scheme{}), "the mirror has another digest")
}
