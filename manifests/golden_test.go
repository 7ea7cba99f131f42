// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

var update = flag.Bool("update", false, "write what Render makes into testdata/golden; read the difference before you commit it")

// TestGolden renders the archives of testdata/golden. Each archive has a section "overrides" (lines "tag
// REPOSITORY=TAG", "rewrite FROM=TO", "policy P", "template FILE" for one of testdata/templates), else a section
// "template". The expected results are "diff" (against the template), "report" (changes and untouched images), or
// "error".
func TestGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/golden/*.txtar", "overrides", []string{"diff", "report", "error"},
		func(t *testing.T, sections map[string]string) map[string]string {
			t.Helper()
			overrides, template := readOverrides(t, sections)
			return renderGolden(t, template, overrides)
		})
}

// golden runs work on the input section and a template and compares the results with the other sections of each
// archive; -update rewrites those.
func golden(
	t *testing.T, pattern, input string, outputs []string,
	work func(t *testing.T, sections map[string]string) map[string]string,
) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			sections := map[string]string{}
			for _, f := range archive.Files {
				sections[f.Name] = string(f.Data)
			}
			got := work(t, sections)
			if *update {
				writeGolden(t, file, archive, input, outputs, got)
				return
			}
			for _, name := range outputs {
				assert.Equal(t, sections[name], got[name], name)
			}
		})
	}
}

func renderGolden(t *testing.T, template []byte, o manifests.Overrides) map[string]string {
	t.Helper()
	r, err := renderBytes(template, o)
	if err != nil {
		assert.Empty(t, r, "no output with an error")
		return map[string]string{"error": err.Error() + "\n"}
	}
	var report strings.Builder
	for _, c := range r.Changes {
		fmt.Fprintf(&report, "changed %s line %d: %q -> %q\n", c.Path, c.Line, c.From, c.To)
	}
	for _, l := range r.Untouched {
		fmt.Fprintf(&report, "left %s line %d, %s of %s: %q (%s)\n", l.Path, l.Line, l.Kind, l.Container, l.Reference, l.Reason)
	}
	checkRendered(t, template, r, o)
	return map[string]string{"diff": manifests.Diff("template", "rendered", template, r.Data), "report": report.String()}
}

func writeGolden(
	t *testing.T, file string, archive *txtar.Archive, input string, outputs []string, got map[string]string,
) {
	t.Helper()
	var kept []txtar.File
	for _, f := range archive.Files {
		if f.Name == input || f.Name == "template" {
			kept = append(kept, f)
		}
	}
	for _, name := range outputs {
		if got[name] != "" {
			kept = append(kept, txtar.File{Name: name, Data: []byte(got[name])})
		}
	}
	archive.Files = kept
	require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
}

func readOverrides(t *testing.T, sections map[string]string) (manifests.Overrides, []byte) {
	t.Helper()
	var o manifests.Overrides
	tags, template := map[string]string{}, []byte(sections["template"])
	for line := range strings.Lines(sections["overrides"]) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, value, _ := strings.Cut(rest, "=")
		switch word {
		case "tag":
			tags[key] = value
		case "rewrite":
			o.Rewrites = append(o.Rewrites, manifests.Rewrite{From: key, To: value})
		case "policy":
			o.PullPolicy = rest
		case "template":
			data, err := os.ReadFile(filepath.Join("testdata/templates", rest))
			require.NoError(t, err)
			template = data
		default:
			require.FailNow(t, "unknown override", line)
		}
	}
	if len(tags) > 0 {
		o.Tag = tagsFrom(tags)
	}
	return o, template
}

func renderBytes(template []byte, o manifests.Overrides) (manifests.Rendered, error) {
	f, err := manifests.Parse(template)
	if err != nil {
		return manifests.Rendered{}, err
	}
	return f.Render(o, nil)
}

func pinBytes(data []byte, pins []manifests.Pinned) ([]byte, error) {
	f, err := manifests.Parse(data)
	if err != nil {
		return nil, err
	}
	pinned, err := f.Pin(pins, manifests.PullIfNotPresent)
	if err != nil {
		return nil, err
	}
	return pinned.Data, nil
}

func equalBytes(a, b []byte) (bool, error) {
	first, errFirst := manifests.Parse(a)
	second, errSecond := manifests.Parse(b)
	if err := errors.Join(errFirst, errSecond); err != nil {
		return false, err
	}
	return manifests.Equal(first, second), nil
}

func tagsFrom(tags map[string]string) func(string, manifests.Image) (string, bool) {
	return func(repository string, _ manifests.Image) (string, bool) {
		tag, ok := tags[repository]
		return tag, ok
	}
}

// checkRendered checks what every successful rendering must satisfy.
func checkRendered(t require.TestingT, template []byte, r manifests.Rendered, o manifests.Overrides) {
	pod, err := manifests.Parse(r.Data)
	require.NoError(t, err)
	require.Equal(t, pod.Images, r.Images)
	equal, err := equalBytes(template, r.Data)
	require.NoError(t, err)
	require.Equal(t, len(r.Changes) == 0, equal, "changes %v", r.Changes)
	require.Equal(t, len(r.Changes) == 0, string(template) == string(r.Data))
	again, err := renderBytes(r.Data, o)
	require.NoError(t, err)
	require.Equal(t, string(r.Data), string(again.Data), "rendering twice is rendering once")
	require.Empty(t, again.Changes)
}
