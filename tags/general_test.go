// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// general is the result of reading a tag of another scheme than SUSE's without settings.
type general struct {
	form                       tags.Form
	name, app, pre, rev, build string
}

var generalTags = map[string]general{
	"1.27.0-alpine":                {form: tags.Single, name: "{version}-alpine", app: "1.27.0"},
	"1.27.0-alpine3.19":            {form: tags.Single, name: "{version}-alpine3.19", app: "1.27.0"},
	"15-openssl":                   {form: tags.Single, name: "{version}-openssl", app: "15"},
	"v2.15.1-head":                 {form: tags.Single, name: "v{version}-head", app: "v2.15.1"},
	"1.3.1.Final":                  {form: tags.Single, name: "{version}.Final", app: "1.3.1"},
	"V1.3.0":                       {form: tags.Single, name: "V{version}", app: "1.3.0"},
	"amd64-1.27.0":                 {form: tags.Single, name: "amd64-{version}", app: "1.27.0"},
	"release-v1.3.0":               {form: tags.Single, name: "release-v{version}", app: "v1.3.0"},
	"x86_64-1.2.3":                 {form: tags.Single, name: "x86_64-{version}", app: "1.2.3"},
	"jdk-17-1.2.3":                 {form: tags.Single, name: "jdk-17-{version}", app: "1.2.3"},
	"2026.02.0":                    {form: tags.Short, name: "{version}", app: "2026.02.0"},
	"24.04":                        {form: tags.Short, name: "{version}", app: "24.04"},
	"00":                           {form: tags.Short, name: "{version}", app: "00"},
	"3.6.4-0":                      {form: tags.Single, name: "{version}-{rev}", app: "3.6.4", rev: "0"},
	"2.1.1-3.36":                   {form: tags.Single, name: "{version}-{rev}", app: "2.1.1", rev: "3.36"},
	"8.9-1107.1706791207":          {form: tags.Single, name: "{version}-{rev}", app: "8.9", rev: "1107.1706791207"},
	"8.0.36-1.el9":                 {form: tags.Single, name: "{version}-1.el9", app: "8.0.36"},
	"v1.33.5-rke2r1-build20250910": {form: tags.Single, name: "v{version}-rke2r{rev}-build{build}", app: "v1.33.5", rev: "1", build: "20250910"},
	"v3.5.19-k3s1-build20250306":   {form: tags.Single, name: "v{version}-k3s{rev}-build{build}", app: "v3.5.19", rev: "1", build: "20250306"},
	"v1.21.10-build2021041301":     {form: tags.Single, name: "v{version}-build{build}", app: "v1.21.10", build: "2021041301"},
	"1.2.3-debian-12-r5":           {form: tags.Single, name: "{version}-debian-12-r{rev}", app: "1.2.3", rev: "5"},
	"1.26.2-r0-ls299":              {form: tags.Single, name: "{version}-r{rev}-ls{build}", app: "1.26.2", rev: "0", build: "299"},
	"1.26.2-ls299-r7":              {form: tags.Single, name: "{version}-ls{build}-r{rev}", app: "1.26.2", rev: "7", build: "299"},
	"17.0.12_7-jre-alpine":         {form: tags.Single, name: "{version}_{rev}-jre-alpine", app: "17.0.12", rev: "7"},
	"1.2.3_4_5-x":                  {form: tags.Single, name: "{version}_4_5-x", app: "1.2.3"},
	"2.7.0-p3":                     {form: tags.Single, name: "{version}-p{rev}", app: "2.7.0", rev: "3"},
	"2.7.0-p2p":                    {form: tags.Single, name: "{version}-p2p", app: "2.7.0"},
	"v1_20211210":                  {form: tags.Single, name: "v{version}_{build}", app: "v1", build: "20211210"},
	"4.16.1-20231219":              {form: tags.Single, name: "{version}-{build}", app: "4.16.1", build: "20231219"},
	"1.2.3-2024-01-15-slim":        {form: tags.Single, name: "{version}-{build}-slim", app: "1.2.3", build: "2024-01-15"},
	"2024-01-15":                   {form: tags.Single, name: "{version}", app: "2024-01-15"},
	"bookworm-20240904-slim":       {form: tags.Single, name: "bookworm-{version}-slim", app: "20240904"},
	"jammy-20240911.1":             {form: tags.Single, name: "jammy-{version}", app: "20240911.1"},
	"RELEASE.2024-01-16T16-07-38Z": {form: tags.Single, name: "RELEASE.{version}Z", app: "2024-01-16T16-07-38"},
	"RELEASE.2024-01-16T16-07-38Z.fips": {
		form: tags.Single, name: "RELEASE.{version}Z.fips", app: "2024-01-16T16-07-38",
	},
	"1.28.0-rc.1":        {form: tags.Single, name: "{version}", app: "1.28.0", pre: "rc.1"},
	"1.28.0-rc.1-alpine": {form: tags.Single, name: "{version}-alpine", app: "1.28.0", pre: "rc.1"},
	"v2.15.1-rc1":        {form: tags.Single, name: "v{version}", app: "v2.15.1", pre: "rc1"},
	"3.0rc1":             {form: tags.Single, name: "{version}", app: "3.0", pre: "rc1"},
	"17rc1":              {form: tags.Single, name: "{version}", app: "17", pre: "rc1"},
	"16beta2":            {form: tags.Single, name: "{version}", app: "16", pre: "beta2"},
	"3.13.0a6":           {form: tags.Single, name: "{version}", app: "3.13.0", pre: "a6"},
	"3.13-rc-slim":       {form: tags.Single, name: "{version}-slim", app: "3.13", pre: "rc"},
	"6.0.0-M1":           {form: tags.Single, name: "{version}", app: "6.0.0", pre: "M1"},
	"2.0.0.beta3":        {form: tags.Single, name: "{version}", app: "2.0.0", pre: "beta3"},
	"1.0.0-alpha-2":      {form: tags.Single, name: "{version}", app: "1.0.0", pre: "alpha-2"},
	"1.0.0-dev":          {form: tags.Single, name: "{version}-dev", app: "1.0.0", pre: "dev"},
	"1.0.0-dev.20240115": {form: tags.Single, name: "{version}", app: "1.0.0", pre: "dev.20240115"},
	"1.0.0-develop":      {form: tags.Single, name: "{version}-develop", app: "1.0.0"},
	"1.0.0-rc1a":         {form: tags.Single, name: "{version}-rc1a", app: "1.0.0"},
}

// unorderedTags have no version that can be ordered, with the reason and the pattern that would read them.
var unorderedTags = map[string]struct{ reason, pattern string }{
	"latest":      {"no version in it", ""},
	"nightly":     {"no version in it", ""},
	"__TAG__":     {"no version in it", ""},
	"alpine3.19":  {"no version in it", "^alpine(?P<version>[0-9.]+)$"},
	"1.3.0GA":     {"no version in it", "^(?P<version>[0-9.]+)GA$"},
	"8u402":       {"no version in it", "^(?P<version>[0-9.]+)u(?P<rev>[0-9.]+)$"},
	"jdk-17":      {"a number without a dot after a word", "^jdk-(?P<version>[0-9.]+)$"},
	"1.":          {"an empty part", ""},
	"1..2":        {"an empty part", ""},
	"1.2.3-":      {"an empty part", ""},
	"1.2.3--slim": {"an empty part", ""},
	"1a2b3c4":     {"a hash in it, which has no order", ""},
	"v1.27.3-713b673cccf1af661efd75ca20532336517ddcb9": {
		"a hash in it, which has no order", "^v(?P<version>[0-9.]+)-[0-9a-f]+$",
	},
	"v2.2.3-5-gabcdef0": {"a hash in it, which has no order", "^v(?P<version>[0-9.]+)-(?P<rev>[0-9]+)-g[0-9a-f]+$"},
	"2.2.0-c558096-cap": {"a hash in it, which has no order", "^(?P<version>[0-9.]+)-[0-9a-f]+-cap$"},
	"c558096-1.2.0":     {"a hash in it, which has no order", "^[0-9a-f]+-(?P<version>[0-9.]+)$"},
	"sha256-7e9a6ca62c3b502a125754fbeb4cde2d37d4261a9c905359585bfc0a63ff17f4.sig": {
		"a hash in it, which has no order", "",
	},
	"main-1a2b3c4-1700000000": {"a hash in it, which has no order", "^main-[0-9a-f]+-(?P<version>[0-9.]+)$"},
	"v1.2.4-0.20240102000000-abcdef123456": {
		"a hash in it, which has no order", `^v(?P<version>[0-9.]+)-(?P<build>[0-9.]+)-[0-9a-f]+$`,
	},
	"4.14.0-202401010000.p0.gabc1234": {
		"a hash in it, which has no order", `^(?P<version>[0-9.]+)-(?P<build>[0-9]+)\.p0\.g[0-9a-f]+$`,
	},
	"1.2.3-20240115-abc1234": {
		"a hash in it, which has no order", "^(?P<version>[0-9.]+)-(?P<build>[0-9]+)-[0-9a-f]+$",
	},
	"v1.29.0-gke.1381000": {
		"a number of 7 digits or more that is no date, as a hash or a build may have",
		`^v(?P<version>[0-9.]+)-gke\.(?P<build>[0-9]+)$`,
	},
	"1.2.3-1234567": {
		"a number of 7 digits or more that is no date, as a hash or a build may have",
		"^(?P<version>[0-9.]+)-(?P<build>[0-9]+)$",
	},
}

func TestTagsOfOtherSchemesAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range generalTags {
		tag, err := tags.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, general{tag.Form(), tag.Name(), tag.App(), tag.Pre(), tag.Rev(), tag.Build()}, text)
		_, converts := tag.Intermediate()
		assert.False(t, converts, text)
		assert.Equal(t, tag, tag.Short(), text)
	}
}

func TestUnorderedTagsHaveAReason(t *testing.T) {
	t.Parallel()
	for text, want := range unorderedTags {
		_, err := tags.Parse(text)
		require.ErrorIs(t, err, tags.ErrUnrecognized, text)
		assert.Equal(t, want.reason, tags.Reason(err), text)
		assert.Equal(t, want.pattern, tags.Scheme{}.Explain(text).Pattern, text)
	}
}

// Each tag is above the one before it, and all of them are in line.
func TestOrderOfOtherSchemes(t *testing.T) {
	t.Parallel()
	for _, line := range [][]string{
		{"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"},
		{"1.0.0-rc1", "1.0.0-rc2", "1.0.0-rc10", "1.0.0", "1.0.1-rc1"},
		{"3.13.0a6", "3.13.0b1", "3.13.0rc1", "3.13.0rc2", "3.13.0"},
		{"2025.9.0", "2025.11.1", "2026.02.0", "2026.04.1", "2026.10.0"},
		{"22.04", "22.10", "24.04", "24.10"},
		{"17.0.12_7-jre", "17.0.12_8-jre", "17.0.13_2-jre"}, // Temurin
		{"3.5.15-0", "3.5.16-0", "3.6.4-0", "3.6.4-1", "3.6.4-10"},
		{"v1.33.5-rke2r1-build20250910", "v1.33.5-rke2r1-build20250911", "v1.33.5-rke2r2-build20250910", "v1.34.1-rke2r1-build20250910"},
		{"1.2.3-debian-12-r5", "1.2.3-debian-12-r10", "1.2.4-debian-12-r0"},
		{"1.26.2-r0-ls299", "1.26.2-r0-ls300", "1.26.2-r1-ls301"},
		{"RELEASE.2023-12-23T07-19-11Z", "RELEASE.2024-01-16T16-07-38Z", "RELEASE.2024-01-16T16-07-39Z"},
		{"2023-12-31", "2024-01-15", "2024-10-01"},
		{"bookworm-20240904", "bookworm-20241016"},
	} {
		for n := 1; n < len(line); n++ {
			from, to := must(t, line[n-1]), must(t, line[n])
			assert.Negative(t, tags.Compare(from, to), "%s %s", from, to)
			assert.Greater(t, tags.ChangeBetween(from, to), tags.Same, "%s %s", from, to)
			if from.Pre() == "" == (to.Pre() == "") {
				assert.True(t, tags.InLine(from, to), "%s %s: %s", from, to, tags.WhyNot(from, to))
			}
		}
	}
}

// The example of semver.org, in ascending order.
func TestOrderOfSemver(t *testing.T) {
	t.Parallel()
	semver, err := tags.NewScheme("", tags.Semver, true)
	require.NoError(t, err)
	line := []string{"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"}
	for n := 1; n < len(line); n++ {
		from, err := semver.Parse(line[n-1])
		require.NoError(t, err)
		to, err := semver.Parse(line[n])
		require.NoError(t, err)
		assert.Negative(t, tags.Compare(from, to), "%s %s", from, to)
		assert.True(t, tags.InLine(from, to))
		assert.Equal(t, tags.Patch, tags.ChangeBetween(from, to), "%s %s", from, to)
	}
}

// Pairs of tags where the second cannot follow the first, with the reason.
func TestTagsNotInLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, why string }{
		{"1.27.0-alpine", "1.27.1-slim", "another name: {version}-slim, and 1.27.0-alpine is {version}-alpine"},
		{"1.27.0-alpine", "1.27.1", "another name: {version}, and 1.27.0-alpine is {version}-alpine"},
		{"1.27.0", "1.27.1-alpine", "another name: {version}-alpine, and 1.27.0 is {version}"},
		{"1.27.0-alpine3.19", "1.27.1-alpine3.20", "another name: {version}-alpine3.20, and 1.27.0-alpine3.19 is {version}-alpine3.19"},
		{"1.27-alpine", "1.28.1-alpine", "3 numbers, and 1.27-alpine has 2"},
		{"1.27.0-alpine", "v1.27.1-alpine", "spelled with a v, and 1.27.0-alpine is not"},
		{"1.27.0", "1.28.0-rc.1", "a pre-release, but 1.27.0 is not one: prereleases: true offers it"},
		{"1.27.0", "1.28.0-dev", "another name: {version}-dev, and 1.27.0 is {version}"},
		{"1.27.0-dev", "1.28.0", "another name: {version}, and 1.27.0-dev is {version}-dev"},
		{"3.6.4", "3.6.5-0", "another name: {version}-{rev}, and 3.6.4 is {version}"},
		{"1.2.3-debian-12", "1.2.4-debian-12-r1", "another name: {version}-debian-12-r{rev}, and 1.2.3-debian-12 is {version}-debian-12"},
		{"v1.20.1-build20210412", "v1.21.10-build2021041301", "a date, a hash or the number of a build, where v1.20.1-build20210412 has a number of another kind"},
		{"2024-01-15", "2024.01.16", "a date, a hash or the number of a build, where 2024-01-15 has a number of another kind"},
		{"2.6.2-rev1", "2.6.3-1", "single tag, and 2.6.2-rev1 is intermediate"},
		{"2.6.2-1", "2.6.3-rev1", "intermediate tag, and 2.6.2-1 is single"},
	} {
		from, to := must(t, c.from), must(t, c.to)
		assert.Equal(t, c.why, tags.WhyNot(from, to), "%s %s", c.from, c.to)
		newest, _ := tags.Newest([]tags.Tag{from, to}, from, tags.Major)
		assert.Equal(t, from, newest, "%s %s", c.from, c.to)
	}
	for _, pair := range [][2]string{
		{"1.28.0-rc.1", "1.28.0"}, {"1.28.0-rc.1", "1.29.0-alpha.1"}, {"1.27.0-dev", "1.28.0-dev"}, {"3.13-rc-slim", "3.13-slim"},
	} {
		assert.True(t, tags.InLine(must(t, pair[0]), must(t, pair[1])), pair)
	}
}

func TestPatternBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, pattern string }{
		{"1.27.0-alpine3.19", "1.27.1-alpine3.20", "^(?P<version>.*)-alpine(?P<rev>[0-9.]+)$"},
		{"16.3-bookworm", "16.4-trixie", "^(?P<version>.*)-(?:bookworm|trixie)$"},
		{"16.3-slim-bookworm", "16.4-slim-trixie", "^(?P<version>.*)-slim-(?:bookworm|trixie)$"},
		{"16.3-bookworm", "16.4-slim-trixie", ""},
		{"1.2.3-alpine", "1.2.4-slim", ""},
		{"1.2.3", "v1.3.0", "^v?(?P<version>.*)$"},
		{"1.2.3-debian-11-r5", "1.2.4-debian-12-r1", "^(?P<version>.*)-debian-[0-9.]+-r(?P<rev>[0-9.]+)$"},
		{
			"v1.27.3-713b673cccf1af661efd75ca20532336517ddcb9", "v1.28.3-813b673cccf1af661efd75ca20532336517ddcb9",
			"^v(?P<version>[0-9.]+)-[0-9a-f]+$",
		},
		{"1.2.3-k3s1-build20240115", "v1.2.4-k3s1-build20240116", "^v?(?P<version>.*)-k3s(?P<rev>[0-9.]+)-build(?P<build>[0-9.]+)$"},
		{"1.2.3", "1.3.0-alpine", ""},
		{"1.2", "1.2.3", ""},
		{"1.2.3-rev1", "1.2.4", ""},
		{"a-1.2", "b-1.3", ""},
		{"1.2.4-alpine3.19", "1.2.3-alpine3.20", ""},
		{"latest", "1.2.3", ""},
	} {
		assert.Equal(t, c.pattern, tags.PatternBetween(c.from, c.to), "%s %s", c.from, c.to)
	}
}
