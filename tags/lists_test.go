// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// The successors found in real tag lists, and the reasons where there are none, match those written by hand.
func TestSuccessorsInRealLists(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/lists.txt")
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	var repository string
	var list []string
	count := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "==":
			repository, list = fields[1], nil
			count["repositories"]++
		case fields[0] == "tags":
			list = fields[1:]
			count["tags"] += len(list)
		case fields[1] == "never":
			count["refused"]++
			e := tags.Scheme{}.Explain(fields[0], fields[2])
			require.Len(t, e.Tags, 1, lines.Text())
			assert.Empty(t, e.Tags[0].Updates, "%s: %s", repository, lines.Text())
			assert.True(t, strings.HasPrefix(e.Tags[0].Reason, strings.Join(fields[3:], " ")), "%s: %s: %s",
				repository, lines.Text(), e.Tags[0].Reason)
			assert.True(t, slices.Contains(list, fields[2]), lines.Text())
		default:
			require.Len(t, fields, 3, lines.Text())
			count["steps"]++
			assert.Equal(t, fields[2], successor(t, list, fields[0], fields[1]), "%s: %s", repository, lines.Text())
		}
	}
	require.NoError(t, lines.Err())
	assert.Equal(t, map[string]int{"repositories": 39, "tags": 335, "steps": 106, "refused": 51}, count)
}

// successor returns the tag of list that a policy offers for the followed tag, "-" for none.
func successor(t *testing.T, list []string, follow, updates string) string {
	t.Helper()
	from := must(t, follow)
	largest, err := tags.ParseChange(updates)
	require.NoError(t, err)
	var all []tags.Tag
	for _, text := range list {
		if tag, err := tags.Parse(text); err == nil {
			all = append(all, tag)
		}
	}
	newest, _ := tags.Newest(all, from, largest)
	if tags.ChangeBetween(from, newest) <= tags.Same {
		return "-"
	}
	return newest.String()
}
