// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// FuzzConfig: any file is either rejected with its name in each line, or gives settings that `config show` prints so
// that they can be read back.
func FuzzConfig(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", "../../../packaging/config.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWalker(platform.Detect("/root"))
		w.read("file", data)
		if len(w.problems) > 0 {
			_, err := w.config(nil)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Regexp(t, `^(file(:\d+)?: |and \d+ more$)`, line)
			}
			return
		}
		c, err := w.config(nil)
		if err != nil {
			return // directories that overlap
		}
		shown, err := c.YAML()
		require.NoError(t, err)
		again, err := read("shown", "/root", string(shown))
		require.NoError(t, err, string(shown))
		require.Equal(t, c.Settings, again.Settings)
	})
}

// slow computes the Levenshtein distance by its definition.
func slow(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	case a[0] == b[0]:
		return slow(a[1:], b[1:])
	}
	return 1 + min(slow(a[1:], b), slow(a, b[1:]), slow(a[1:], b[1:]))
}

func TestDistance(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		require.Equal(t, slow(a, b), distance(a, b))
	})
	assert.Greater(t, distance(strings.Repeat("a", 1<<20), "a"), 64)
}
