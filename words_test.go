// SPDX-License-Identifier: Apache-2.0

package module

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// privateWords are those of STYLE.md's table that have no other sense.
var privateWords = regexp.MustCompile(`(?i)\b(a yes|a look|the way back|who asks|memo|guests?|(a|the) tag (goes|went) back)\b`)

func TestPrivateWordsAreNotUsed(t *testing.T) {
	t.Parallel()
	style, err := os.ReadFile("STYLE.md")
	require.NoError(t, err)
	for _, word := range []string{"a yes", "a look", "the way back", "who asks", "memo", "guest", "a tag goes back"} {
		assert.Contains(t, string(style), word)
	}
	read := 0
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || name == "STYLE.md" || name == "words_test.go" || path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		read++
		for n, line := range strings.Split(string(text), "\n") {
			if word := privateWords.FindString(line); word != "" {
				t.Errorf("%s:%d: %q: see the words of STYLE.md", name, n+1, word)
			}
		}
		return err
	})
	require.NoError(t, err)
	assert.Greater(t, read, 100, "the walk must see the module")
}
