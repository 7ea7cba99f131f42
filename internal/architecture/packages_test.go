// SPDX-License-Identifier: Apache-2.0

// Package architecture has no code, only tests of the tree and its pages. .golangci.yml lists the allowed imports.
//
// A page that names a test is believed long after the test was renamed, and a limit that is named as protection could
// be removed without a failing test. So names, links and tables are checked here, and e2e/cmd/mutants breaks each
// guard.
package architecture

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the module's root, relative to this package.
const root = "../.."

// The table of packages lists exactly the packages of the tree, and the files that the page names are there.
func TestEveryPackageIsInTheDesign(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile(path.Join(root, "docs/dev/design.md"))
	require.NoError(t, err)
	var named []string
	for _, line := range regexp.MustCompile(`(?m)^ {4}(\S+)/ +[0-9]+  `).FindAllStringSubmatch(string(design), -1) {
		named = append(named, line[1])
	}
	dir := "" // of the last file that is named with its directory
	for _, file := range regexp.MustCompile(`(?:[a-z][\w-]*/)*[\w-]+\.go\b`).FindAllString(string(design), -1) {
		if path.Dir(file) != "." {
			dir = path.Dir(file)
		}
		assert.FileExists(t, path.Join(root, dir, path.Base(file)))
	}
	packages, err := packagesBelow(os.DirFS(root))
	require.NoError(t, err)
	assert.Greater(t, len(packages), 50, "the walk must see the module")
	assert.ElementsMatch(t, packages, named, "docs/dev/design.md: a line with the layer for each package; .golangci.yml wants it, too")
}

// packagesBelow lists the directories with Go files other than tests, except those that are not part of the program.
func packagesBelow(fsys fs.FS) ([]string, error) {
	found := map[string]bool{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "e2e", "tools"}, d.Name())):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			found[path.Dir(name)] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

func TestEveryGoFileNamesItsLicence(t *testing.T) {
	t.Parallel()
	var names []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && slices.Contains([]string{".git", "vendor", "dist", ".build"}, entry.Name()) {
			return fs.SkipDir
		}
		names = append(names, strings.TrimPrefix(path, root+"/"))
		return err
	}))
	for _, name := range names {
		if path.Ext(name) != ".go" {
			continue
		}
		text, err := os.ReadFile(path.Join(root, name))
		if !os.IsNotExist(err) { // removed from the disk, but not yet from git
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(string(text), "// SPDX-License-Identifier: Apache-2.0\n"), name)
		}
	}
}

// What `go build` leaves beside its sources is easily added to git, and stays in its history.
func TestNoProgramIsAmongTheSources(t *testing.T) {
	t.Parallel()
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "vendor", "dist", ".build", "bin"}, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular() || path.Ext(name) == ".test":
			return nil
		case slices.Contains([]string{"image-update-agent", "image-update-agent-local-registry", "image-catalog"}, entry.Name()):
			return nil // .gitignore keeps these out
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		head := make([]byte, 4)
		n, _ := file.Read(head)
		assert.NotEqual(t, "\x7fELF", string(head[:n]), name)
		return nil
	}))
}
