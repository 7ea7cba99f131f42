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
