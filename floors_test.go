// SPDX-License-Identifier: Apache-2.0

// Package house holds no code: it is the test that the module is built as "The house" in docs/dev/design.md says.
//
// Words: a room is a package directory; its floor is the number beside it in the table; a guest is a package of
// another module.
//
// The files are parsed, not listed by `go list`: go test caches what a program prints, and knows when a file that a
// test has read changes.
package house

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
	module   = "github.com/kubic-project/image-update-agent"
	spdxLine = "// SPDX-License-Identifier: Apache-2.0"

	// A file of 300 lines is still read in one go; tests are read case by case and may have 500.
	maxLines     = 300
	maxTestLines = 500
)

// guests lists, by module, who may import it outside of tests. A new one also wants a file in docs/dev/decisions.
var guests = map[string][]string{
	"github.com/containerd/containerd/api": {"internal/runtimeevents"},
	"github.com/containerd/containerd/v2":  {"internal/images", "internal/layout", "internal/ocimanifest", "internal/registry", "internal/registry/hosts", "internal/registry/transport"},
	"github.com/containerd/errdefs":        {"internal/images", "internal/registry/hosts"},
	"github.com/containerd/log":            {"cmd/image-update-agent", "internal/registry/hosts"},
	"github.com/containerd/platforms":      {"internal/images", "internal/layout", "internal/ocimanifest", "internal/registry"},
	"github.com/coreos/go-systemd/v22":     {"systemd"},
	"github.com/distribution/reference":    {"agent", "internal/images", "internal/ocimanifest", "internal/registry", "internal/signature"},
	"github.com/godbus/dbus/v5":            {"internal/api", "internal/bus", "internal/bus/bustest"},
	"github.com/opencontainers/go-digest":  {"agent", "agent/agenttest", "cmd/image-update-agent", "internal/images", "internal/layout", "internal/ocimanifest", "internal/pods", "internal/registry", "internal/signature", "internal/state"},
	"github.com/opencontainers/image-spec": {"internal/images", "internal/layout", "internal/ocimanifest", "internal/registry", "internal/signature"},
	"github.com/pelletier/go-toml/v2":      {"internal/config", "internal/registry/hosts"},
	"github.com/prometheus/client_golang":  {"internal/metrics"},
	"github.com/rogpeppe/go-internal/diff": {"manifests"},
	"github.com/sigstore/sigstore":         {"internal/signature"},
	"github.com/spf13/cobra":               {"cmd/image-update-agent"},
	"github.com/stretchr/testify":          {"agent/agenttest", "internal/registry/registrytest"},
	"golang.org/x/net/http/httpproxy":      {"internal/registry/hosts"},
	"golang.org/x/net/netutil":             {"internal/api", "internal/metrics"},
	"golang.org/x/sync":                    {"agent", "cmd/image-update-agent", "internal/images"},
	"golang.org/x/sys":                     {"internal/doctor", "internal/atomicfile", "internal/pods", "internal/state", "systemd"},
	"golang.org/x/term":                    {"internal/terminal"},
	"golang.org/x/time":                    {"internal/images", "internal/registry/transport"},
	"google.golang.org/grpc":               {"internal/images", "internal/pods", "internal/runtimeevents"},
	"google.golang.org/protobuf":           {"internal/runtimeevents"},
	"gopkg.in/yaml.v3":                     {"internal/config", "internal/grains", "internal/yamledit", "manifests"},
	"k8s.io/cri-api":                       {"internal/pods"},
}

// pure rooms touch neither files nor network nor other processes: what they need is given to them.
var pure = []string{"agent", "internal/outside", "internal/window", "internal/yamledit", "manifests", "tags"}

var impure = regexp.MustCompile(`^(os|net|syscall|plugin|unsafe)(/|$)`)

// sideways may be used by the other rooms of their floor, the lowest.
var sideways = []string{"internal/atomicfile", "internal/outside", "internal/trustedfile", "internal/yamledit"}

// long are the files above the limit, each with its reason.
var long = map[string]string{}

// source is one Go file: its path from the module's root, with slashes, and its bytes.
type source struct {
	path string
	text []byte
}

func (s source) room() string { return path.Dir(s.path) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }
func (s source) isBeside() bool {
	return strings.HasPrefix(s.path, "e2e/") || strings.HasPrefix(s.path, "tools/") ||
		bytes.Contains(s.text, []byte("\n//go:build killpoints\n")) // only tests build it
}

func TestTheHouseIsBuiltAsItsDesignSays(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile("docs/dev/design.md")
	require.NoError(t, err)
	floors, err := floorsOf(string(design))
	require.NoError(t, err)
	files, err := goFiles(os.DirFS("."))
	require.NoError(t, err)
	for _, problem := range inspect(floors, files) {
		t.Error(problem)
	}
	assert.Greater(t, len(files), 50, "the walk must see the module")
	for name := range long {
		assert.FileExists(t, name, "long: a reason without its file")
	}
}

// floorsOf reads the table of rooms: an indented line with a directory, a slash, and the floor.
func floorsOf(design string) (map[string]int, error) {
	_, rest, found := strings.Cut(design, "\n## The house\n")
	if !found {
		return nil, fmt.Errorf("docs/dev/design.md: no section %q", "The house")
	}
	house, _, _ := strings.Cut(rest, "\n## ")
	floors := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^ {4}(\S+)/ +([0-9])  `).FindAllStringSubmatch(house, -1) {
		floors[line[1]] = int(line[2][0] - '0')
	}
	if len(floors) == 0 {
		return nil, fmt.Errorf("docs/dev/design.md: %q names no rooms", "The house")
	}
	return floors, nil
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

// inspect returns what is wrong with the house, sorted.
func inspect(floors map[string]int, files []source) []string {
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
		described[f.room()] = described[f.room()] || describes(parsed)
		if !f.isBeside() {
			inspectImports(floors, f, parsed, report)
		}
	}
	for room, has := range described {
		if !has {
			report("%s: no package comment", room)
		}
	}
	for room := range floors {
		if _, there := described[room]; !there {
			report("%s: stands in the house, but has no Go files", room)
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
func inspectImports(floors map[string]int, f source, parsed *ast.File, report func(string, ...any)) {
	if _, known := floors[f.room()]; !known {
		report("%s: the house has no such room: name it with its floor in docs/dev/design.md", f.room())
		return
	}
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			report("%s: import %s: %v", f.path, spec.Path.Value, err)
			continue
		}
		var problem string
		if own, is := strings.CutPrefix(name, module+"/"); is {
			problem = neighbour(floors, f.room(), own)
		} else {
			problem = stranger(f.room(), name)
		}
		if problem != "" {
			report("%s: imports %s: %s", f.path, name, problem)
		}
	}
}

// neighbour says what is wrong with a room importing another one.
func neighbour(floors map[string]int, room, other string) string {
	from := floors[room]
	to, known := floors[other]
	switch {
	case !known:
		return "the house has no such room"
	case strings.HasSuffix(other, "test"):
		return "for tests only"
	case to > from:
		return fmt.Sprintf("up from floor %d to %d", from, to)
	case to == from && (from != 0 || !slices.Contains(sideways, other)):
		return fmt.Sprintf("sideways on floor %d", from)
	}
	return ""
}

// stranger says what is wrong with a room importing a package from outside the module.
func stranger(room, name string) string {
	host, _, _ := strings.Cut(name, "/")
	switch isStandard := !strings.Contains(host, "."); {
	case isStandard && slices.Contains(pure, room) && impure.MatchString(name):
		return "this room is pure"
	case !isStandard && !slices.Contains(hosts(name), room):
		return "not a guest of this room: see guests in floors_test.go"
	}
	return ""
}

// hosts are the rooms that may import a package of another module.
func hosts(name string) []string {
	for _, guest := range slices.Sorted(maps.Keys(guests)) {
		if name == guest || strings.HasPrefix(name, guest+"/") {
			return guests[guest]
		}
	}
	return nil
}

func TestInspect(t *testing.T) {
	t.Parallel()
	floors := map[string]int{
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
	own := func(room string) string { return "import _ \"" + module + "/" + room + "\"\n" }
	for name, c := range map[string]struct {
		files []source
		want  string // empty: nothing is wrong
	}{
		"down":                  {file("agent/a.go", own("tags")), ""},
		"a test's helper":       {file("internal/api/a.go", own("agent/agenttest")), "for tests only"},
		"two down":              {file("internal/api/a.go", own("internal/state")), ""},
		"up":                    {file("agent/a.go", own("internal/state")), "up from floor 1 to 2"},
		"from the bottom up":    {file("tags/a.go", own("agent")), "up from floor 0 to 1"},
		"sideways on 0":         {file("tags/a.go", own("internal/window")), "sideways on floor 0"},
		"sideways on 0, lent":   {file("internal/window/a.go", own("internal/atomicfile")), ""},
		"sideways on 2":         {file("internal/state/a.go", own("internal/pods")), "sideways on floor 2"},
		"sideways on 3":         {file("internal/api/a.go", own("internal/metrics")), "sideways on floor 3"},
		"a test may":            {file("internal/state/a_test.go", own("internal/pods")), ""},
		"unknown neighbour":     {file("agent/a.go", own("internal/util")), "the house has no such room"},
		"unknown room":          {file("internal/util/a.go", ""), "internal/util: the house has no such room"},
		"room below a room":     {file("agent/deep/a.go", ""), "agent/deep: the house has no such room"},
		"cobra in cmd":          {file("cmd/image-update-agent/a.go", `import "github.com/spf13/cobra"`), ""},
		"cobra elsewhere":       {file("internal/api/a.go", `import "github.com/spf13/cobra"`), "not a guest"},
		"agent and containerd":  {file("agent/a.go", `import "github.com/containerd/containerd/v2/client"`), "not a guest"},
		"agent and D-Bus":       {file("agent/a.go", `import "github.com/godbus/dbus/v5"`), "not a guest"},
		"agent and its guests":  {file("agent/a.go", `import "github.com/opencontainers/go-digest"`), ""},
		"a guest's namesake":    {file("agent/a.go", `import "github.com/opencontainers/go-digest2"`), "not a guest"},
		"agent and the network": {file("agent/a.go", `import "net/http"`), "this room is pure"},
		"agent and the disk":    {file("agent/a.go", `import "os"`), "this room is pure"},
		"tags and a guest":      {file("tags/a.go", `import "gopkg.in/yaml.v3"`), "not a guest"},
		"renamed import":        {file("tags/a.go", `import y "gopkg.in/yaml.v3"`), "not a guest"},
		"no package comment":    {[]source{{"tags/a.go", []byte(spdxLine + "\n\npackage tags\n")}}, "tags: no package comment"},
		"stray package comment": {[]source{{"tags/a.go", []byte(spdxLine + "\n\n// Tags are.\npackage tags\n")}}, "tags: no package comment"},
		"no licence":            {[]source{{"tags/a_test.go", []byte("package tags\n")}}, "the first line is not"},
		"broken":                {[]source{{"tags/a.go", []byte(spdxLine + "\n\npackag")}}, "expected 'package'"},
		"long":                  {file("tags/a.go", strings.Repeat("//\n", maxLines)), "more than 300"},
		"long test":             {file("tags/a_test.go", strings.Repeat("//\n", maxTestLines)), "more than 500"},
		"built by tests only":   {file("agent/a.go", "\n//go:build killpoints\n"+own("agent/agenttest")), ""},
		"beside the house":      {file("e2e/node/a.go", `import "github.com/spf13/cobra"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, problem := range inspect(floors, c.files) {
				if !strings.Contains(problem, "has no Go files") { // the rooms that the case leaves out
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

func TestARoomWithoutFilesIsAProblem(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"tags: stands in the house, but has no Go files"}, inspect(map[string]int{"tags": 0}, nil))
}

func TestFloorsOf(t *testing.T) {
	t.Parallel()
	floors, err := floorsOf("# d\n\n    x/  1  not here\n\n## The house\n\n    agent/    1  words\n    e2e/         own\n\n## Next\n\n    y/  1  nor here\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"agent": 1}, floors)
	_, err = floorsOf("# d\n")
	require.Error(t, err)
	_, err = floorsOf("\n## The house\n\nempty\n")
	require.Error(t, err)
}
