// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// hiddenOfOurs are the texts of this project that look like a secret or its place; they are not output.
var hiddenOfOurs = []string{
	"%s:%s@%s\n", // of REPOSITORY:TAG@DIGEST
	"TestNoRequestAfterFirst429",
}

// TestOurOwnTextsStay: the texts of the agent and its pages are not secrets. Mask does not change any string in the
// code, nor any line of the users' pages, the units and the packaging.
func TestOurOwnTextsStay(t *testing.T) {
	t.Parallel()
	texts := map[string]string{} // text to one of its places
	for _, pattern := range []string{"docs/*.md", "docs/man/*.md", "packaging/*.yaml", "packaging/*/*.yml", "systemd/*", "README.md"} {
		pages, err := filepath.Glob("../../../" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages, pattern)
		for _, page := range pages {
			info, err := os.Stat(page)
			require.NoError(t, err)
			if info.IsDir() || strings.HasSuffix(page, ".go") {
				continue
			}
			data, err := os.ReadFile(page)
			require.NoError(t, err)
			for n, line := range strings.Split(string(data), "\n") {
				texts[line] = page + ":" + strconv.Itoa(n+1)
			}
		}
	}
	for _, tree := range []string{"agent", "cmd", "internal", "manifests", "tags"} {
		require.NoError(t, filepath.WalkDir("../../../"+tree, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isPattern(call) {
					return false
				}
				literal, ok := n.(*ast.BasicLit)
				if field, isField := n.(*ast.Field); isField {
					field.Tag = nil
				}
				if !ok || literal.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(literal.Value); assert.NoError(t, err) {
					texts[text] = files.Position(literal.Pos()).String()
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, len(texts), 5000)
	for text, at := range texts {
		if slices.ContainsFunc(hiddenOfOurs, func(s string) bool { return strings.Contains(text, s) }) {
			continue
		}
		assert.Equal(t, text, outside.Mask(text), at)
	}
}

// isPattern reports whether a call compiles a regular expression, which is not output.
func isPattern(call *ast.CallExpr) bool {
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	in, ok := of.X.(*ast.Ident)
	return of.Sel.Name == "MustCompile" || ok && in.Name == "lazyregexp"
}
