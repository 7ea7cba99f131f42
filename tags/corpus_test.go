// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// corpus reads testdata/tags.tsv: tags that publishers really used, with image, tag and source. It returns each tag
// once.
func corpus(tb testing.TB) []string {
	tb.Helper()
	file, err := os.Open("testdata/tags.tsv")
	require.NoError(tb, err)
	defer func() { assert.NoError(tb, file.Close()) }()

	var all []string
	seen := map[string]bool{}
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			require.NoError(tb, lines.Err())
			return all
		}
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		require.Len(tb, fields, 3, lines.Text())
		if tag := fields[1]; !seen[tag] {
			seen[tag] = true
			all = append(all, tag)
		}
	}
}

func TestCorpusClasses(t *testing.T) {
	t.Parallel()
	classes := map[tags.Class][]string{}
	for _, text := range corpus(t) {
		tag, err := tags.SUSEOnly().Parse(text)
		class := classOf(tag, err)
		classes[class] = append(classes[class], text)
	}
	assert.Len(t, classes[tags.ClassShort], 123)
	assert.Len(t, classes[tags.ClassIntermediate], 38)
	assert.Len(t, classes[tags.ClassLong], 26)
	assert.Equal(t, []string{"1.5.4-rev5-build"}, classes[tags.ClassMalformed])
	assert.Len(t, classes[tags.ClassUnrecognized], 19)
	assert.Empty(t, classes[tags.ClassInvalid])
}

func TestCorpusAgreesWithTheGrammar(t *testing.T) {
	t.Parallel()
	for _, text := range corpus(t) {
		checkAgainstGrammar(t, text)
	}
}
