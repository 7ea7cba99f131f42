// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/tags"
)

// Digits alone among versions are dates, hashes and builds.
func TestDigitsAloneAreNotAVersion(t *testing.T) {
	t.Parallel()
	sha := strings.Repeat("1234567890", 4)
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"13", "14", true},
		{"9", "10", true},
		{"99", "100", true},
		{"13", "125", true},
		{"999", "1000", true},
		{"2019", "2022", true},
		{"20240115", "20240301", true},
		{"1234", "1235", true},
		{"9999", "10000", true},
		{"1.2.3", "2.0.0", true},
		{"1.2.3-rev1", "1.2.3-rev2", true},
		{"1.2.3-rev9", "1.2.3-rev10", true},
		{"2024.1.15", "2024.2.1", true},
		{"1.2.3", "20240115", false},
		{"1.2.3", "1234567", false},
		{"1.2.3", "20240115.1.1", false},
		{"1.2", "20240115.1", false},
		{"20240115.1", "20240301.1", true},
		{"1.2", "20240115", false},
		{"13", "20240115", false},
		{"13", "202401", false},
		{"13", "2024", false},
		{"13", "1234567", false},
		{"13", "1842", false},
		{"13", sha, false},
		{"1", "20240115093000", false},
		{"v1", "v20240115", false},
		{"20240115", "14", false},
		{"1234567", "20240115", false},
		{"20240115", "20240115093000", false},
		{"4.0.0-rev1", "20240115-rev1", false},
		{"4-rev1", "20240115-rev1", false},
		{"4.0.0-rev1", "4.0.0-rev20240115", false},
		{"4.0.0-rev1-build1.1", "1234567-rev1-build1.1", false},
	} {
		from, to := must(t, c.from), must(t, c.to)
		assert.Equal(t, c.want, tags.InLine(from, to), "%s to %s", c.from, c.to)
		newest, _ := tags.Newest([]tags.Tag{from, to}, from, tags.Major)
		if !c.want {
			assert.Equal(t, from, newest, "%s to %s", c.from, c.to)
		}
	}
	assert.False(t, tags.InLine(must(t, "1.2.3-1"), must(t, "1.2.3-20240115")))
	assert.True(t, must(t, "20240115").IsStamp())
	assert.False(t, must(t, "13").IsStamp())
	assert.False(t, must(t, "2024.1").IsStamp())
}

func TestNewerTagsNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ follow, list, want string }{
		{"2025.11.1", "2025.10.3 2025.11.0 2025.11.1 2026.02.0 2026.04.1 latest", ""},
		{"v1.29.7", "v1.29.7-rke2r1-build20240717 v1.30.4-rke2r1-build20240815", "v1.30.4-rke2r1-build20240815: another name: v{version}-rke2r{rev}-build{build}, and v1.29.7 is v{version}"},
		{"v1.29.7-rke2r1-build20240717", "v1.29.7-rke2r1-build20240717 v1.30.4-rke2r1-build20240815 v1.30.5-rke2r1-build20240912 v1.30.4-rke2r1", ""},
		{"1.27.0-alpine3.19", "1.27.0-alpine3.19 1.27.1-alpine3.20 1.27.1-slim", `1.27.1-alpine3.20: another name: {version}-alpine3.20, and 1.27.0-alpine3.19 is {version}-alpine3.19 [^(?P<version>.*)-alpine(?P<rev>[0-9.]+)$]; 1.27.1-slim: another name: {version}-slim, and 1.27.0-alpine3.19 is {version}-alpine3.19`},
		{"1.27.0", "1.27.0 1.27.1-1a2b3c4 1.27.1-9f86d08", `1.27.1-1a2b3c4: a hash in it, which has no order; 1.27.1-9f86d08: a hash in it, which has no order`},
		{"1.2.1", "1.0.0 1.2.1 1.2.2 1.8.1259 nightly", ""},
		{"1.2.3", "1.2.3 20240115 1234567 v20240115 2024-01-15 1.2.3-20240115 " + strings.Repeat("12", 20) + " 20240115093000", ""},
		{"1.2.3", "v1.3.0", "v1.3.0: spelled with a v, and 1.2.3 is not [^v?(?P<version>.*)$]"},
		{"v1.2.3", "1.3.0", "1.3.0: spelled without a v, and v1.2.3 has one [^v?(?P<version>.*)$]"},
		{"1.2.3", "V1.3.0", `V1.3.0: another name: V{version}, and 1.2.3 is {version}`},
		{"1.2.3", "release-1.3.0 1.4.0_1", `release-1.3.0: another name: release-{version}, and 1.2.3 is {version}; 1.4.0_1: another name: {version}_{rev}, and 1.2.3 is {version}`},
		{"1.2.3", "1.3", "1.3: 2 numbers, and 1.2.3 has 3"},
		{"1.2.3", "1.3 1.3.0 1 1.3-alpine", ""},
		{"1.2.3", "1.3.0-alpine", `1.3.0-alpine: another name: {version}-alpine, and 1.2.3 is {version}`},
		{"1.2.3", "1.3.0-rc1 2.0.0-beta.1 1.3.0-SNAPSHOT 9f86d08 latest sha256-00.sig alpine-3.19", ""},
		{"1.2.3", "1.3.0GA 1.3.1.Final", `1.3.0GA: "GA" after the version; 1.3.1.Final: another name: {version}.Final, and 1.2.3 is {version}`},
		{"1.2.3", "2.0.0rc1 1.3.0b2 1.3.0a1 2.0.0.beta3 1.3.0dev", ""},
		{"1.2.3", "v.1.3.0 r1.4.0", `v.1.3.0: another name: v.{version}, and 1.2.3 is {version}; r1.4.0: "r" before the version`},
		{"1.2.3", "9f8e7d6 1a2b3c4 4e10 v9abc r2d2 3d.4 r1234", ""},
		{"15.5", "15.5 15.5.36.5.67", ""},
		{"4.0.0-rev1", "4.0.0-rev02 4.0.0-rev2-build 4.0.0", "4.0.0-rev02: leading zero in revision; 4.0.0-rev2-build: empty build"},
		{"4.0.0", "4.0.0 4.0.0-rev1 4.0.0-rev1-build1.1", ""},
		{"4.0.0-rev1", "4.1.0", "4.1.0: short tag, and 4.0.0-rev1 is intermediate"},
		{"4.0.0-rev1", "4.1.0 4.1.0-rev1 4.1.0-rev1-build1.1", ""},
	} {
		var got []string
		for _, n := range tags.FindNotUnderstood(strings.Fields(c.list), must(t, c.follow), tags.Scheme{}, 3) {
			text := n.Tag + ": " + n.Reason
			if n.Pattern != "" {
				text += " [" + n.Pattern + "]"
			}
			got = append(got, text)
		}
		assert.Equal(t, c.want, strings.Join(got, "; "), c.follow)
	}
}
