// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// userPages are the pages for users, by name.
func userPages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	out := map[string]string{}
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		out[filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name)] = string(text)
	}
	require.Greater(t, len(out), 20, "the walk must see the pages")
	return out
}

// defaults are the defaults of all settings, by key.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	var settings []struct{ Key, Value string }
	require.NoError(t, json.Unmarshal([]byte(does(t, "config", "show", "--root", t.TempDir(), "--output", "json")), &settings))
	out := map[string]string{}
	for _, s := range settings {
		out[s.Key] = s.Value
	}
	return out
}

// `config check` accepts each block of YAML that sets something.
func TestSettingsOnThePagesAreValid(t *testing.T) {
	t.Parallel()
	shipped, err := os.ReadFile(shippedFile)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```|((?:^    [^\n]*\n)+)")
	checked := 0
	for name, text := range userPages(t) {
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			config := block[1] + block[2]
			margin := regexp.MustCompile(`^ *`).FindString(config)
			config = regexp.MustCompile(`(?m)^`+margin).ReplaceAllString(config, "")
			key := regexp.MustCompile(`(?m)^[a-zA-Z]+:`).FindString(config)
			if key == "" || !strings.Contains(string(shipped), "\n#"+key) {
				continue // a command, output, or a file of another program
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
			assert.NotEmpty(t, does(t, "config", "check", "--config", file), name)
			checked++
		}
	}
	assert.Greater(t, checked, 15)
}

// What a page calls the default of a setting, as in `settle` (30s by default), is the default.
func TestDefaultsOnThePages(t *testing.T) {
	t.Parallel()
	is := defaults(t)
	is["updates"] = "revision" // of repositories, which is a list; a test of config has its default
	found := 0
	for name, text := range userPages(t) {
		stated := regexp.MustCompile("`([a-zA-Z.]+)`\\s\\((\\S+)\\sby\\sdefault\\)")
		for _, match := range stated.FindAllStringSubmatch(text, -1) {
			assert.Equal(t, is[match[1]], match[2], "%s: %s", name, match[1])
			found++
		}
	}
	assert.Greater(t, found, 5)
}

// Each command on a page is one of the program, with its flags.
func TestCommandsOnThePages(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile("(?m)(?:^ {4,7}(?:\\$ )?|`|'|\\$\\()image-update-agent ([^`|#;)'\\n]+)")
	found := 0
	for name, text := range userPages(t) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, match := range command.FindAllStringSubmatch(text, -1) {
			found++
			line, _, _ := strings.Cut(match[1], "  ") // a comment
			cmd, rest, err := (&app{}).command().Find(strings.Fields(line))
			require.NoError(t, err, name)
			if cmd.HasSubCommands() && len(rest) > 0 {
				assert.True(t, strings.HasPrefix(rest[0], "-"), "%s: %s: no such command", name, line)
			}
			for _, arg := range rest {
				if flag, is := strings.CutPrefix(arg, "--"); is {
					flag, _, _ = strings.Cut(flag, "=")
					assert.NotNil(t, flagOf(cmd, flag), "%s: %s: no flag --%s", name, line, flag)
				}
			}
		}
	}
	assert.Greater(t, found, 60)
}

func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	return cmp.Or(cmd.Flags().Lookup(name), cmd.InheritedFlags().Lookup(name))
}

// The messages that docs/troubleshooting.md explains are those that the program prints.
func TestMessagesOfTroubleshootingExist(t *testing.T) {
	t.Parallel()
	_, table, found := strings.Cut(userPages(t)["docs/troubleshooting.md"], "\n| message |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var code strings.Builder
	for _, dir := range []string{"../../agent", "../../internal", "."} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}))
	}
	ofOthers := regexp.MustCompile(`^(4\d\d|x509|no space left on device|read-only file system)$`)
	messages := 0
	for row := range strings.Lines(table) {
		first, _, _ := strings.Cut(row, " | ")
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			if !ofOthers.MatchString(quoted[1]) {
				messages++
				if !strings.Contains(code.String(), quoted[1]) {
					t.Errorf("%s: nothing prints that", quoted[1])
				}
			}
		}
	}
	assert.Greater(t, messages, 10)
}

// usual is where the script is.
const usual = "usr/share/caasp-container-manifests/admin-node-setup.sh"

// setupCommand is what docs/caasp.md has an admin type to take the image loop out, on this root.
func setupCommand(t *testing.T, root string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/caasp.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n    script=")
	require.True(t, found)
	rest, _, _ = strings.Cut("script="+rest, "\n    chmod ")
	return strings.NewReplacer("/usr/", root+"/usr/", "/etc/", root+"/etc/").Replace(rest)
}

// takeLoopOut types it where the script is as given; empty: there is no new one.
func takeLoopOut(t *testing.T, script string) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, map[string]string{usual: script, "etc/hosts": ""})
	said, err := exec.CommandContext(t.Context(), "sh", "-c", setupCommand(t, root)).CombinedOutput()
	if err != nil { // of diff
		t.Logf("%v: %s", err, said)
	}
	text, err := os.ReadFile(filepath.Join(root, "etc/admin-node-setup.sh"))
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return string(text)
}

// In a file of the archive "- " begins a line of the loop, and "  " one that has to stay.
func TestTheLoopIsTakenOutOfEveryPublicScript(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/admin-node-setup.txtar")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(archive.Files), 6)
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			var script, want strings.Builder
			for line := range strings.Lines(string(file.Data)) {
				line, stays := strings.CutPrefix(line, "  ")
				line, goes := strings.CutPrefix(line, "- ")
				require.True(t, stays || goes || line == "\n", line)
				script.WriteString(line)
				if !goes {
					want.WriteString(line)
				}
			}
			require.NotEqual(t, script.String(), want.String())
			got := takeLoopOut(t, script.String())
			assert.Equal(t, want.String(), got)
		})
	}
}

// Where the end of the loop is not found, everything behind its beginning would go.
func TestAnUnknownScriptIsNotCutShort(t *testing.T) {
	t.Parallel()
	got := takeLoopOut(t, "#!/bin/sh\ntmp_dir=$(mktemp -d)\ncp a $tmp_dir\nrm -r \"$tmp_dir\"\ngen-certs.sh\n")
	assert.Empty(t, got)
}

// The examples in the help of `manifests render` work on the real templates.
func TestTheExamplesOfRenderRun(t *testing.T) {
	t.Parallel()
	const templates = "../../manifests/testdata/templates"
	help := strings.ReplaceAll((&app{}).manifestsRenderCommand().Example, "\\\n", " ")
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(templates, "kube-apiserver.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), text, 0o600))
	place := strings.NewReplacer(
		"public.yaml", templates+"/public.yaml", "private.yaml", templates+"/private.yaml",
		"/etc/kubernetes/manifests", dir, "--to out", "--to "+t.TempDir(),
	)
	examples := regexp.MustCompile(`(?m)^ +image-update-agent (manifests render .*)$`).FindAllStringSubmatch(help, -1)
	assert.NotEmpty(t, examples)
	for _, example := range examples {
		out := does(t, strings.Fields(place.Replace(example[1]))...)
		if strings.Contains(example[1], "--diff") {
			assert.Regexp(t, `(?m)^\+ +image: registry\.`, out, example[1])
		}
	}
}
