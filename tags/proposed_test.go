// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// A proposed pattern orders the tag and a later build of it, which the list has. Without one, none is proposed.
func TestProposedPatternsOrderAnotherTag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tag, later string }{
		{"2025-06-14T10-11-12-1a2b3c4", "2025-06-15T09-00-00-9f8e7d6"},
		{"2025-06-14T10-11-12-1a2b3c4", "2025-06-14T10-11-13-9f8e7d6"},
		{"2025-06-14-1a2b3c4", "2025-06-15-9f8e7d6"},
		{"2025-06-14T10-11-12Z-1a2b3c4", "2025-06-14T11-00-00Z-9f8e7d6"},
		{"main-2025-06-14-1a2b3c4", "main-2025-07-01-9f8e7d6"},
		{"1.4.0-20250614T1011-1a2b3c4", "1.4.1-20250615T0900-9f8e7d6"},
		{"1.4.0-20250614T1011-1a2b3c4", "1.4.0-20250614T1012-9f8e7d6"},
		{"1.4.0-20250614-101112-1a2b3c4", "1.4.0-20250615-090000-9f8e7d6"},
		{"1.4.0-20250614101112-1a2b3c4", "1.4.0-20250615090000-9f8e7d6"},
		{"1.4.0-2025-06-14-1a2b3c4", "1.4.0-2025-06-15-9f8e7d6"},
		{"1.4.0-2025-06-14T10-11-12-1a2b3c4", "1.4.0-2025-06-14T10-11-13-9f8e7d6"},
		{"1.4.0-20250614-1a2b3c4-7", "1.4.0-20250615-9f8e7d6-3"},
		{"v2.3.0-rc.0.17.gaaaa111", "v2.3.0-rc.0.18.g1abb7b5dd"},
		{"v2.3.0-rc.0.17.gaaaa111", "v2.4.0-rc.0.1.g1abb7b5dd"},
		{"v2.3.0-alpha.2-14-gaaaa111", "v2.3.0-beta.1-2-g1abb7b5"},
		{"v2.2.3-5-gabcdef0", "v2.2.3-6-g0fedcba"},
		{"v1.29.0-gke.1381000", "v1.29.0-gke.1390000"},
		{"1.2.3-1234567", "1.2.3-1234568"},
		{"PR-123-4D5E6F7a8b9c", "PR-124-0D5E6F7a8b9c"},
		{"2.45.0-LTS-r1-A1b2C3d4", "2.45.0-LTS-r2-B1b2C3d4"},
		{"2.45.0-LTS-r1-A1b2C3d4", "2.46.0-LTS-r1-B1b2C3d4"},
		{"openjdk-21-JRE-9f86d08", "openjdk-22-JRE-1f86d08"},
		{"main-1a2b3c4-1700000000", "main-9f8e7d6-1700000001"},
		{"c558096-1.2.0", "9f8e7d6-1.2.1"},
		{"1.3.0GA", "1.3.1GA"},
		{"8u402", "8u412"},
		{"8u402-b06-jdk", "8u412-b08-jdk"},
		{"jdk-17", "jdk-21"},
		{"build1234-1a2b3c4", "build1235-9f8e7d6"},
		{"1.2.3-alpine3.19-1a2b3c4", "1.2.4-alpine3.19-9f8e7d6"},
		{"1.2.3-alpine3.19-1a2b3c4", "1.2.4-alpine3.20-9f8e7d6"},
		{"v1.36.4-0.20260817193921-a2fc9574e060-build20260820", "v1.36.4-0.20260818193921-b2fc9574e060-build20260821"},
		{"4.14.0-202401010000.p0.gabc1234", "4.14.0-202401020000.p0.gdef5678"},
		{"4.14.0-202401010000.p0.gabc1234", "4.14.0-202401020000.p1.gdef5678"},
		{"20250614.3-1a2b3c4", "20250614.4-9f8e7d6"},
		{"20250614T1011-1a2b3c4", "20250614T1012-9f8e7d6"},
		{"release-2025.06.14-1a2b3c4", "release-2025.06.15-9f8e7d6"},
		{"1.2.3_2025.06.14_1a2b3c4", "1.2.3_2025.06.15_9f8e7d6"},
	} {
		list := []string{c.tag, "latest", "main", c.later, "9f8e7d6c", "sha256-00.sig"}
		pattern := tags.PatternFor(c.tag, list)
		if assert.NotEmpty(t, pattern, "%s %s", c.tag, c.later) {
			s, err := tags.NewScheme(pattern, "", false)
			require.NoError(t, err, pattern)
			assert.Equal(t, c.later, successorIn(t, s, c.tag, list...), "%s: %s", c.tag, pattern)
			assert.LessOrEqual(t, len(pattern), 256)
		}
		explained := tags.Scheme{}.Explain(c.tag, list...)
		assert.Equal(t, pattern, explained.Pattern)
		assert.Empty(t, tags.PatternFor(c.tag, []string{c.tag, "latest", "other-" + c.later + "-x"}), "nothing to order")
		assert.Empty(t, tags.PatternFor(c.tag, nil))
	}
	for tag := range strings.FieldsSeq("latest nightly git-9f86D081884c 9f86d08 sha256-00.sig 1.5.4-rev5-build 1.27.0-alpine") {
		assert.Empty(t, tags.PatternFor(tag, []string{tag, "latest", "1.2.3", "git-1f86D081884c", "1f86d08", "1.28.0-alpine"}), tag)
	}
}
