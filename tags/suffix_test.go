// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// A tag with the version of the followed one and a higher number in the same place of the suffix is a revision or a
// rebuild, or it looks newer. It is neither where the number is a date beside a counter, part of a hash, or lower.
func TestHigherNumberInTheSuffixIsSeen(t *testing.T) {
	t.Parallel()
	const looksNewer, not = "looks newer", "no"
	for _, c := range []struct{ follow, other, want string }{
		{"v1.5.1-flannel1", "v1.5.1-flannel2", "revision"},
		{"v1.5.1-flannel9", "v1.5.1-flannel10", "revision"},
		{"1.2.3-hotfix-1", "1.2.3-hotfix-2", "revision"},
		{"1.2.3-hotfix.1", "1.2.3-hotfix.2", "revision"},
		{"1.2.3-hotfix1", "1.2.3-hotfix2", "revision"},
		{"1.2.3-patch1-slim", "1.2.3-patch2-slim", "revision"},
		{"v1.29.3-gke.5", "v1.29.3-gke.12", "revision"},
		{"v1.29.3_vmware.1", "v1.29.3_vmware.2", "revision"},
		{"7.9.1-1-ubi8", "7.9.1-2-ubi8", "revision"},
		{"7.9.1-9-ubi8", "7.9.2-1-ubi8", "patch"},
		{"v1.29.3-rke2r1-build20240315", "v1.29.3-rke2r1-build20240401", "rebuild"},
		{"v1.29.3-rke2r1-build20240315", "v1.29.3-rke2r2-build20240315", "revision"},
		{"1.2.3-debian-12-r4", "1.2.3-debian-12-r5", "revision"},
		{"1.2.3-debian-11-r4", "1.2.3-debian-12-r0", looksNewer},
		{"1.26.2-ls123", "1.26.2-ls124", "rebuild"},
		{"v1.2.3-0.20240101", "v1.2.3-0.20240102", "revision"},
		{"16.2-bookworm", "16.2-trixie", not},
		{"16.2-jammy-20240101", "16.2-jammy-20240201", "rebuild"},
		{"17.0.12_7-jre", "17.0.12_8-jre", "revision"},
		{"1.27.0-alpine3.19", "1.27.0-alpine3.20", looksNewer},
		{"1.27.0-alpine-2", "1.27.0-alpine-3", looksNewer},
		{"1.27.0-alpine-3", "1.27.0-alpine-12", looksNewer},
		{"2.8.1-ubi8", "2.8.1-ubi9", looksNewer},
		{"2.14.2-pg15", "2.14.2-pg16", looksNewer},
		{"3.9.6-eclipse-temurin-17", "3.9.6-eclipse-temurin-21", looksNewer},
		{"v1.30.1-k8s1.29", "v1.30.1-k8s1.30", looksNewer},
		{"v1.29.1-eks-1-29-11", "v1.29.1-eks-1-29-12", looksNewer},
		{"1.4.0-ds-1", "1.4.0-ds-2", looksNewer},
		{"8.0.36-1.el9", "8.0.36-2.el9", looksNewer},
		{"1.18.0-6ubuntu14.4", "1.18.0-6ubuntu14.5", looksNewer},
		{"2.4.1-1deb12u3", "2.4.1-1deb12u4", looksNewer},
		{"15-3.3-alpine", "15-3.4-alpine", looksNewer},
		{"v1.2.3-acme1-b7", "v1.2.3-acme2-b1", looksNewer},
		{"amd64-1.2.3-acme.7", "amd64-1.2.3-acme.8", looksNewer},
		{"1.2.3", "1.2.3-hotfix-1", looksNewer},
		{"1.2.3-alpine", "1.2.3-alpine-patch2", looksNewer},
		{"1.2.3-acme-2024.01.15", "1.2.3-acme-2024.02.01", looksNewer},
		{"eclipse-temurin-17.0.4_1.7.1_3.2.0", "eclipse-temurin-17.0.4_1.7.2_3.2.0", looksNewer},
		{"15-acme1", "15-acme2", looksNewer},
		{"1.2.3-r5-acme2", "1.2.3-r6-acme1", looksNewer},
		{"1.2.3-r5-acme2", "1.2.3-r4-acme3", not},
		{"1.2.3-hotfix-1", "1.2.3", not},
		{"1.2.3", "1.2.3-1", not},
		{"1.2.3", "1.2.3-flannel1", not},
		{"1.2.3-windowsservercore-ltsc2019", "1.2.3-windowsservercore-ltsc2022", looksNewer},
		{"1.2.3-acme-sha1234567", "1.2.3-acme-sha1234568", not},
		{"1.2.3-acme1", "1.2.3-acme20240115", not}, // a date
		{"1.2.3-acme1", "1.2.3-acme1234567", not},  // a hash
		{"1.2.3-1ab2c", "1.2.3-1ab3c", not},        // a short hash
		{"1.2.3-20240115", "1.2.3-3", not},
		{"1.2.3-acme2", "1.2.3-acme1", not},
		{"1.2.3-acme1", "1.2.2-acme2", not},
		{"1.2.3-acme1", "1.2.3-other2", not},
		{"1.2.3-acme1", "1.2.3-acme2-slim", not},
		{"1.2.3-amd64", "1.2.3-arm64", not},
		{"1.27.0-alpine", "1.27.0-slim", not},
		{"1.27.0-alpine", "1.27.0-alpine3.19", not},
		{"1.27.0", "1.27.0-alpine3.19", not},
		{"1.2.3-rc.1", "1.2.3-rc.2", "patch"},
	} {
		row := fmt.Sprintf("%s to %s", c.follow, c.other)
		from := must(t, c.follow)
		got := not
		newer := tags.FindNotUnderstood([]string{c.follow, c.other}, from, tags.Scheme{}, 8)
		if v := (tags.Scheme{}).Explain(c.follow, c.other).Tags[0]; v.Updates != "" {
			got = v.Updates
			assert.Empty(t, newer, row)
		} else if len(newer) > 0 {
			got = looksNewer
			if newer[0].Pattern == "" {
				assert.Regexp(t, "hotfix|patch", c.other, "no pattern orders a number that the other tag lacks")
			} else {
				s, err := tags.NewScheme(newer[0].Pattern, "", false)
				require.NoError(t, err, row)
				assert.Equal(t, c.other, successorIn(t, s, c.follow, c.other), "%s: %s", row, newer[0].Pattern)
			}
		}
		assert.Equal(t, c.want, got, row)
	}
}

// successorIn returns the newest of some tags that a scheme lets an image move to.
func successorIn(t *testing.T, s tags.Scheme, follow string, others ...string) string {
	t.Helper()
	from, err := s.Parse(follow)
	require.NoError(t, err)
	var list []tags.Tag
	for _, other := range others {
		if tag, err := s.Parse(other); err == nil {
			list = append(list, tag)
		}
	}
	newest, _ := tags.Newest(list, from, tags.Major)
	return newest.String()
}

// What looks newer is the nearest first, tags that differ in numbers alone before other names, and the rest is cut.
func TestNearestLooksNewerFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ follow, list, want string }{
		{
			"1.2.3-acme1", "9.0.0 8.0.0 1.2.3-acme3 1.2.3-acme2 1.3.0 2.0.0-acme9",
			"1.2.3-acme2 1.2.3-acme3 2.0.0-acme9 1.3.0",
		},
		{"1.2.3", "v1.2.4 2.0.0-slim 1.2.4-slim 9.0.0-slim", "v1.2.4 1.2.4-slim 2.0.0-slim 9.0.0-slim"},
		// A newer version that can follow does not hide a higher number beside the followed version.
		{"1.2.3-acme1", "1.2.3-acme2 1.2.4-acme1 1.2.4-acme2 1.2.3-other9", "1.2.3-acme2 1.2.4-acme2"},
	} {
		var got []string
		for _, n := range tags.FindNotUnderstood(strings.Fields(c.list), must(t, c.follow), tags.Scheme{}, 4) {
			got = append(got, n.Tag)
		}
		assert.Equal(t, c.want, strings.Join(got, " "), c.follow)
	}
}

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
