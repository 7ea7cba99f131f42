// SPDX-License-Identifier: Apache-2.0

// Package module holds no code: it is the test that the module is built as "Packages" in docs/dev/design.md says.
//
// A package's layer is the number beside it in the table there.
//
// The files are parsed, not listed by `go list`: go test caches what a program prints, and knows when a file that a
// test has read changes.
package module

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ownPath  = "github.com/kubic-project/image-update-agent"
	spdxLine = "// SPDX-License-Identifier: Apache-2.0"

	// A file of 300 lines is still read in one go; tests are read case by case and may have 500.
	maxLines     = 300
	maxTestLines = 500
)

// dependencies lists, by module, who may import it outside of tests. A new one also wants a file in docs/dev/decisions.
var dependencies = map[string][]string{
	"github.com/containerd/containerd/api":   {"internal/runtimeevents"},
	"github.com/containerd/containerd/v2":    {"internal/images", "internal/layout", "internal/ocimanifest", "internal/registry", "internal/registry/hosts", "internal/registry/transport"},
	"github.com/containerd/errdefs":          {"internal/images", "internal/registry/hosts"},
	"github.com/containerd/log":              {"cmd/image-update-agent", "internal/registry/hosts"},
	"github.com/containerd/platforms":        {"cmd/image-catalog", "internal/catalog/publish", "internal/images", "internal/layout", "internal/ocimanifest", "internal/registry"},
	"github.com/coreos/go-systemd/v22":       {"systemd"},
	"github.com/distribution/reference":      {"agent/release", "internal/catalog", "internal/catalog/publish", "internal/images", "internal/ocimanifest", "internal/registry", "internal/signature", "manifests"},
	"github.com/godbus/dbus/v5":              {"internal/api", "internal/bus", "internal/bus/bustest"},
	"github.com/google/go-containerregistry": {"internal/catalog/store"},
	"github.com/opencontainers/go-digest":    {"agent", "agent/agenttest", "agent/apply", "agent/follow", "agent/node", "agent/ownhost", "agent/plan", "agent/record", "agent/release", "agent/report", "agent/source", "agent/stage", "agent/status", "cmd/image-catalog", "internal/catalog", "internal/catalog/channel", "internal/catalog/publish", "internal/catalog/store", "internal/images", "internal/layout", "internal/localhost", "internal/ocimanifest", "internal/pods", "internal/registry", "internal/signature", "internal/state", "manifests"},
	"github.com/opencontainers/image-spec":   {"cmd/image-catalog", "internal/catalog", "internal/catalog/channel", "internal/catalog/publish", "internal/catalog/store", "internal/images", "internal/layout", "internal/ocimanifest", "internal/registry", "internal/signature"},
	"github.com/pelletier/go-toml/v2":        {"internal/config", "internal/localhost", "internal/registry/hosts"},
	"github.com/prometheus/client_golang":    {"internal/metrics"},
	"github.com/rogpeppe/go-internal/diff":   {"manifests"},
	"github.com/sigstore/sigstore":           {"internal/catalog/publish", "internal/signature"},
	"github.com/spf13/cobra":                 {"cmd/image-catalog", "cmd/image-update-agent"},
	"github.com/stretchr/testify":            {"agent/agenttest", "internal/registry/registrytest"},
	"golang.org/x/net/http/httpproxy":        {"internal/registry/hosts"},
	"golang.org/x/net/netutil":               {"internal/api", "internal/metrics"},
	"golang.org/x/sync":                      {"agent/stage", "cmd/image-update-agent", "internal/catalog/publish", "internal/images"},
	"golang.org/x/sys":                       {"internal/doctor", "internal/atomicfile", "internal/pods", "internal/state", "systemd"},
	"golang.org/x/term":                      {"internal/terminal"},
	"golang.org/x/time":                      {"internal/images", "internal/registry/transport"},
	"google.golang.org/grpc":                 {"internal/images", "internal/pods", "internal/runtimeevents"},
	"google.golang.org/protobuf":             {"internal/runtimeevents"},
	"gopkg.in/yaml.v3":                       {"internal/config", "internal/grains", "internal/quorum", "internal/yamledit", "manifests"},
	"k8s.io/cri-api":                         {"internal/pods"},
}

// pure packages touch neither files nor network nor other processes: what they need is given to them.
var pure = []string{
	"agent", "agent/apply", "agent/follow", "agent/node", "agent/ownhost", "agent/plan", "agent/policy", "agent/quorum", "agent/record", "agent/release",
	"agent/report", "agent/source", "agent/stage", "agent/status", "agent/watch",
	"internal/catalog", "internal/outside", "internal/window", "internal/yamledit", "manifests", "tags",
}

var impure = regexp.MustCompile(`^(os|net|syscall|plugin|unsafe)(/|$)`)

// sideways may be used by the other packages of their layer, the lowest.
var sideways = []string{"internal/atomicfile", "internal/outside", "internal/trustedfile", "internal/yamledit"}

// long are the files above the limit, each with its reason.
var long = map[string]string{}

// source is one Go file: its path from the module's root, with slashes, and its bytes.
type source struct {
	path string
	text []byte
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }
func (s source) isBeside() bool {
	return strings.HasPrefix(s.path, "e2e/") || strings.HasPrefix(s.path, "tools/") ||
		bytes.Contains(s.text, []byte("\n//go:build killpoints\n")) // only tests build it
}

func TestPackagesAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile("docs/dev/design.md")
	require.NoError(t, err)
	layers, err := layersOf(string(design))
	require.NoError(t, err)
	files, err := goFiles(os.DirFS("."))
	require.NoError(t, err)
	for _, problem := range inspect(layers, files) {
		t.Error(problem)
	}
	assert.Greater(t, len(files), 50, "the walk must see the module")
	for name := range long {
		assert.FileExists(t, name, "long: a reason without its file")
	}
}

// layersOf reads the table of packages: an indented line with a directory, a slash, and the layer.
func layersOf(design string) (map[string]int, error) {
	_, rest, found := strings.Cut(design, "\n## Packages\n")
	if !found {
		return nil, fmt.Errorf("docs/dev/design.md: no section %q", "Packages")
	}
	module, _, _ := strings.Cut(rest, "\n## ")
	layers := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^ {4}(\S+)/ +([0-9]+)  `).FindAllStringSubmatch(module, -1) {
		layer, err := strconv.Atoi(line[2])
		if err != nil {
			return nil, fmt.Errorf("docs/dev/design.md: %s: %w", line[1], err)
		}
		layers[line[1]] = layer
	}
	if len(layers) == 0 {
		return nil, fmt.Errorf("docs/dev/design.md: %q names no packages", "Packages")
	}
	return layers, nil
}

// goFiles reads every Go file of the checkout but those below testdata and dot directories.
func goFiles(fsys fs.FS) ([]source, error) {
	var files []source
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		files = append(files, source{name, text})
		return err
	})
	return files, err
}

// inspect returns what is wrong with the module, sorted.
func inspect(layers map[string]int, files []source) []string {
	var problems []string
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	described := map[string]bool{}
	for _, f := range files {
		inspectText(f, report)
		if f.isTest() {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			report("%s: %v", f.path, err)
			continue
		}
		described[f.dir()] = described[f.dir()] || describes(parsed)
		if !f.isBeside() {
			inspectImports(layers, f, parsed, report)
		}
	}
	for dir, has := range described {
		if !has {
			report("%s: no package comment", dir)
		}
	}
	for dir := range layers {
		if _, there := described[dir]; !there {
			report("%s: is in the table, but has no Go files", dir)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// inspectText checks what needs no parser.
func inspectText(f source, report func(string, ...any)) {
	if first, _, _ := bytes.Cut(f.text, []byte("\n")); string(first) != spdxLine {
		report("%s: the first line is not %q", f.path, spdxLine)
	}
	limit := maxLines
	if f.isTest() {
		limit = maxTestLines
	}
	if lines := bytes.Count(f.text, []byte("\n")); lines > limit && long[f.path] == "" {
		report("%s: %d lines, more than %d: split it, or give the reason in %q", f.path, lines, limit, "long")
	}
}

// describes reports whether the file has the package comment.
func describes(f *ast.File) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package "+f.Name.Name+" ") ||
		f.Name.Name == "main" && strings.HasPrefix(text, "Command ")
}

// inspectImports checks who imports whom.
func inspectImports(layers map[string]int, f source, parsed *ast.File, report func(string, ...any)) {
	if _, known := layers[f.dir()]; !known {
		report("%s: docs/dev/design.md has no such package: name it with its layer in docs/dev/design.md", f.dir())
		return
	}
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			report("%s: import %s: %v", f.path, spec.Path.Value, err)
			continue
		}
		var problem string
		if own, is := strings.CutPrefix(name, ownPath+"/"); is {
			problem = ownImport(layers, f.dir(), own)
		} else {
			problem = otherImport(f.dir(), name)
		}
		if problem != "" {
			report("%s: imports %s: %s", f.path, name, problem)
		}
	}
}

// ownImport says what is wrong with a dir importing another one.
func ownImport(layers map[string]int, dir, other string) string {
	from := layers[dir]
	to, known := layers[other]
	switch {
	case !known:
		return "docs/dev/design.md has no such package"
	case strings.HasSuffix(other, "test"):
		return "for tests only"
	case to > from:
		return fmt.Sprintf("up from layer %d to %d", from, to)
	case to == from && (from != 0 || !slices.Contains(sideways, other)):
		return fmt.Sprintf("sideways in layer %d", from)
	}
	return ""
}

// otherImport says what is wrong with a dir importing a package from outside the module.
func otherImport(dir, name string) string {
	host, _, _ := strings.Cut(name, "/")
	switch isStandard := !strings.Contains(host, "."); {
	case isStandard && slices.Contains(pure, dir) && impure.MatchString(name):
		return "this package is pure"
	case !isStandard && !slices.Contains(importersOf(name), dir):
		return "not a dependency of this package: see dependencies in layers_test.go"
	}
	return ""
}

// hosts are the packages that may import a package of another module.
func importersOf(name string) []string {
	for _, dependency := range slices.Sorted(maps.Keys(dependencies)) {
		if name == dependency || strings.HasPrefix(name, dependency+"/") {
			return dependencies[dependency]
		}
	}
	return nil
}

func TestInspect(t *testing.T) {
	t.Parallel()
	layers := map[string]int{
		"tags": 0, "internal/window": 0, "internal/atomicfile": 0, "agent": 1, "agent/agenttest": 2, "internal/state": 2, "internal/pods": 2,
		"internal/api": 3, "internal/metrics": 3, "cmd/image-update-agent": 4,
	}
	file := func(name, imports string) []source {
		head := "// Package " + path.Base(path.Dir(name)) + " is.\npackage " + path.Base(path.Dir(name)) + "\n"
		if strings.HasPrefix(name, "cmd/") {
			head = "// Command " + path.Base(path.Dir(name)) + " is.\npackage main\n"
		}
		return []source{{name, []byte(spdxLine + "\n\n" + head + imports)}}
	}
	own := func(dir string) string { return "import _ \"" + ownPath + "/" + dir + "\"\n" }
	for name, c := range map[string]struct {
		files []source
		want  string // empty: nothing is wrong
	}{
		"down":                       {file("agent/a.go", own("tags")), ""},
		"a test's helper":            {file("internal/api/a.go", own("agent/agenttest")), "for tests only"},
		"two down":                   {file("internal/api/a.go", own("internal/state")), ""},
		"up":                         {file("agent/a.go", own("internal/state")), "up from layer 1 to 2"},
		"from the bottom up":         {file("tags/a.go", own("agent")), "up from layer 0 to 1"},
		"sideways on 0":              {file("tags/a.go", own("internal/window")), "sideways in layer 0"},
		"sideways on 0, lent":        {file("internal/window/a.go", own("internal/atomicfile")), ""},
		"sideways on 2":              {file("internal/state/a.go", own("internal/pods")), "sideways in layer 2"},
		"sideways on 3":              {file("internal/api/a.go", own("internal/metrics")), "sideways in layer 3"},
		"a test may":                 {file("internal/state/a_test.go", own("internal/pods")), ""},
		"unknown import":             {file("agent/a.go", own("internal/util")), "docs/dev/design.md has no such package"},
		"unknown package":            {file("internal/util/a.go", ""), "internal/util: docs/dev/design.md has no such package"},
		"package below a package":    {file("agent/deep/a.go", ""), "agent/deep: docs/dev/design.md has no such package"},
		"cobra in cmd":               {file("cmd/image-update-agent/a.go", `import "github.com/spf13/cobra"`), ""},
		"cobra elsewhere":            {file("internal/api/a.go", `import "github.com/spf13/cobra"`), "not a dependency"},
		"agent and containerd":       {file("agent/a.go", `import "github.com/containerd/containerd/v2/client"`), "not a dependency"},
		"agent and D-Bus":            {file("agent/a.go", `import "github.com/godbus/dbus/v5"`), "not a dependency"},
		"agent and its dependencies": {file("agent/a.go", `import "github.com/opencontainers/go-digest"`), ""},
		"a dependency's namesake":    {file("agent/a.go", `import "github.com/opencontainers/go-digest2"`), "not a dependency"},
		"agent and the network":      {file("agent/a.go", `import "net/http"`), "this package is pure"},
		"agent and the disk":         {file("agent/a.go", `import "os"`), "this package is pure"},
		"tags and a dependency":      {file("tags/a.go", `import "gopkg.in/yaml.v3"`), "not a dependency"},
		"renamed import":             {file("tags/a.go", `import y "gopkg.in/yaml.v3"`), "not a dependency"},
		"no package comment":         {[]source{{"tags/a.go", []byte(spdxLine + "\n\npackage tags\n")}}, "tags: no package comment"},
		"stray package comment":      {[]source{{"tags/a.go", []byte(spdxLine + "\n\n// Tags are.\npackage tags\n")}}, "tags: no package comment"},
		"no licence":                 {[]source{{"tags/a_test.go", []byte("package tags\n")}}, "the first line is not"},
		"broken":                     {[]source{{"tags/a.go", []byte(spdxLine + "\n\npackag")}}, "expected 'package'"},
		"long":                       {file("tags/a.go", strings.Repeat("//\n", maxLines)), "more than 300"},
		"long test":                  {file("tags/a_test.go", strings.Repeat("//\n", maxTestLines)), "more than 500"},
		"built by tests only":        {file("agent/a.go", "\n//go:build killpoints\n"+own("agent/agenttest")), ""},
		"beside the module":          {file("e2e/node/a.go", `import "github.com/spf13/cobra"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, problem := range inspect(layers, c.files) {
				if !strings.Contains(problem, "has no Go files") { // the packages that the case leaves out
					got = append(got, problem)
				}
			}
			if c.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Contains(t, got[0], c.want)
		})
	}
}

func TestAPackageWithoutFilesIsAProblem(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"tags: is in the table, but has no Go files"}, inspect(map[string]int{"tags": 0}, nil))
}

func TestLayersOf(t *testing.T) {
	t.Parallel()
	layers, err := layersOf("# d\n\n    x/  1  not here\n\n## Packages\n\n    agent/    1  words\n    e2e/         own\n\n## Next\n\n    y/  1  nor here\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"agent": 1}, layers)
	_, err = layersOf("# d\n")
	require.Error(t, err)
	_, err = layersOf("\n## Packages\n\nempty\n")
	require.Error(t, err)
}
