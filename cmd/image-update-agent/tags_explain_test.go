// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/tags"
)

// explained returns the rows of `tags explain` by their names.
func explained(t *testing.T, tag string, flags ...string) map[string]string {
	t.Helper()
	_, out, errs := ends(t, append(append([]string{"tags", "explain"}, flags...), "--", tag)...)
	require.Empty(t, errs)
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, is := strings.Cut(line, ":"); is && rows[name] == "" {
			rows[name] = strings.TrimSpace(value)
		}
	}
	return rows
}

func TestExplainSaysWhatTheAgentFollows(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string][2]string{
		"repo:1.0":                              {followsNothing, "give only the tag: 1.0"},
		"example.com:5000/a:1.0":                {followsNothing, "give only the tag: 1.0"},
		"example.com:5000/a":                    {followsNothing, ""},
		"1.0+2":                                 {followsNothing, ""},
		"%%VERSION%%":                           {followsNothing, ""},
		"":                                      {followsNothing, ""},
		"sha256:" + strings.Repeat("a", 64):     {followsDigest, ""},
		"a:1@sha256:" + strings.Repeat("a", 64): {followsDigest, ""},
		"__TAG__":                               {followsNewest, ""},
		"latest":                                {followsRebuilds, ""},
		"1.5.4-rev5-build":                      {followsRebuilds, ""},
		"1.27.0-alpine":                         {followsTag, ""},
		"4.0.0-rev1":                            {followsTag, ""},
		"4.0.0":                                 {"the intermediate tag with its digest, " + ifConverted, ""},
		"4.0.0-rev1-build2":                     {"4.0.0-rev1, " + ifConverted, ""},
	} {
		rows := explained(t, tag)
		assert.Equal(t, want[0], rows["Follows"], tag)
		assert.Equal(t, want[1], rows["Remedy"], tag)
	}
	assert.Equal(t, followsRebuilds, explained(t, "4.0.0-rev1", "--versions", "calendar")["Follows"])
}

// The row "Follows" agrees with the agent's decision about an image with the tag, for tags of all classes.
func TestExplainAgreesWithTheAgent(t *testing.T) {
	t.Parallel()
	list := []string{"latest", "__TAG__", "4.0.0", "4.0.0-rev2", "4.0.0-rev2-build1.1", "5.0.0", "6.0.0-rev1-build1", "1.5.4-rev5-build"}
	list = append(list, madeUpTags(80)...)
	published := make([]string, 0, len(list))
	classes := map[tags.Class]int{}
	for _, tag := range list {
		class := tags.Classify(tag)
		if classes[class]++; class != tags.ClassInvalid {
			published = append(published, tag)
		}
	}
	for _, class := range []tags.Class{
		tags.ClassShort, tags.ClassIntermediate, tags.ClassLong, tags.ClassSingle, tags.ClassMalformed, tags.ClassUnrecognized,
		tags.ClassInvalid,
	} {
		require.Positive(t, classes[class], class)
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"
	for n, tag := range list {
		pod += fmt.Sprintf("  - {name: c%d, image: %q}\n", n, "HOST/haproxy:"+tag)
	}
	for _, config := range []struct{ text, versions string }{{"", ""}, {"versions: semver", "semver"}} {
		got, _ := previewWith(t, published, "repositories: [{match: HOST/haproxy, tags: {"+config.text+"}}]\n",
			map[string]string{"web.yaml": pod})
		require.Len(t, got.Images, len(list))
		for n, tag := range list {
			says := explained(t, tag, "--versions", config.versions)["Follows"]
			assert.Truef(t, agrees(says, tag, got.Images[n]), "%q %s: %s, and the agent: %+v", tag, config.text, says, got.Images[n])
		}
	}
}

// agrees reports whether a row "Follows" says what the agent decided about an image with a tag.
func agrees(says, tag string, is preview.Image) bool {
	switch {
	case is.Repository == "":
		return says == followsNothing || says == followsDigest
	case tag == "__TAG__":
		return says == followsNewest && is.Follow != tag // semver has no tag that follows a placeholder
	case is.Error != "":
		return false
	case is.RebuildsOnly != nil:
		return says == followsRebuilds && is.Follow == tag
	case is.Follow != tag:
		return strings.HasSuffix(says, ifConverted) && (strings.HasPrefix(says, is.Follow+", ") || strings.HasPrefix(says, "the intermediate tag"))
	default:
		return says == followsTag || strings.HasSuffix(says, ifConverted)
	}
}

// madeUpTags returns texts that resemble tags.
func madeUpTags(count int) []string {
	parts := []string{"1", "2.0", "4.0.0", "-rev1", "-rev2", "-build1", "-build2.1", "v", "-alpine", "latest", "-rc.1", "+", ":", "/", ".", "20250101", "-1a2b3c4d"}
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var out []string
	for len(out) < count {
		text := ""
		for range 1 + random.IntN(4) {
			text += parts[random.IntN(len(parts))]
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out
}
