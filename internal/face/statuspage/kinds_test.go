// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever reads a status goes by its fields.
func TestReadersOfAStatusHaveNoRegexps(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "../api", "../doctor", "../hook", "../metrics", "../../../cmd/image-update-agent"} {
		for _, name := range sources(t, dir) {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, imported := range file.Imports {
				assert.NotEqual(t, `"regexp"`, imported.Path.Value, name)
			}
		}
	}
}

// sources are the files of a package, without tests.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	assert.NotEmpty(t, files, dir)
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// Pages go by kinds and fields: the agent's sentences are for people.
func TestPagesReadNoSentences(t *testing.T) {
	t.Parallel()
	reads := []string{
		"Contains", "ContainsAny", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "HasPrefix", "HasSuffix", "Index",
		"LastIndex", "Split", "SplitN", "TrimPrefix", "TrimSuffix", "Fields", "Replace", "ReplaceAll",
	}
	references := "progress.go: Cut" // of the name in a reference, and its digest
	for _, name := range sources(t, ".") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.SelectorExpr)
			if !is {
				return true
			}
			pkg, is := call.X.(*ast.Ident)
			if is && pkg.Name == "strings" && slices.Contains(reads, call.Sel.Name) {
				assert.Equal(t, references, name+": "+call.Sel.Name)
			}
			return true
		})
	}
}
