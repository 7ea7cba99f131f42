// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

var sectionType = regexp.MustCompile(`\bconfig\.([A-Z][a-zA-Z]+)`)

// Each field of the settings must be read by the daemon's wiring or by doctor: a field of a section together with the
// section's field, or in a file that names its type. internal/node/config shows that each key reaches its field
// (TestEveryKeyReachesItsSetting).
func TestEverySettingIsReadOutsideItsPackage(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	for _, dir := range []string{"cmd/image-update-agent", "internal/face/doctor"} {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				addReads(t, read, name)
			}
		}
	}
	fields := settingFields(reflect.TypeFor[config.Settings](), "")
	require.Greater(t, len(fields), 40)
	for _, field := range fields {
		assert.True(t, read[field], "the setting %s is read by nothing", field)
	}
}

// addReads adds the names that a file selects: alone, with the field before them, and with the sections that it names.
func addReads(t *testing.T, read map[string]bool, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	sections := sectionType.FindAllSubmatch(text, -1)
	ast.Inspect(parsed, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		read[s.Sel.Name] = true
		if outer, ok := s.X.(*ast.SelectorExpr); ok {
			read[outer.Sel.Name+"."+s.Sel.Name] = true
		}
		for _, section := range sections {
			read[string(section[1])+"."+s.Sel.Name] = true
		}
		return true
	})
}

// settingFields returns the names of the settings' fields, those of sections with their section.
func settingFields(of reflect.Type, section string) []string {
	var names []string
	for f := range of.Fields() {
		if f.Type.Kind() == reflect.Struct && strings.HasSuffix(f.Type.PkgPath(), "internal/node/config") && section == "" {
			names = append(names, settingFields(f.Type, f.Name+".")...)
			continue
		}
		names = append(names, section+f.Name)
	}
	return names
}
