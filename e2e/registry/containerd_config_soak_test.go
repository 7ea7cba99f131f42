// SPDX-License-Identifier: Apache-2.0

//go:build soak

package registry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// TestContainerdsConfigPathIsReadAsByContainerd generates configurations with imports, and compares the config_path
// that the agent reads with that of `containerd config dump` of 1.6, 1.7 and 2.x, each in its own mount namespace.
func TestContainerdsConfigPathIsReadAsByContainerd(t *testing.T) {
	t.Parallel()
	for version, forms := range map[node.Version][]string{
		node.Containerd16: {"2"}, node.Containerd17: {"2"}, node.Containerd2: {"2", "3"},
	} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{})
			program := n.ContainerdProgram(version)
			random := rand.New(rand.NewPCG(20261121, 0))
			seen := map[string]int{}
			for i := range 40 {
				form := forms[i%len(forms)]
				files := containerdFiles(random, form)
				for name, text := range files {
					n.WriteFile(filepath.Join("etc/containerd", name), text)
				}
				theirs := dumpedConfigPath(t, n, program)
				ours := shownCertsD(t, n)
				if theirs == "" {
					// Without a config_path, the agent uses containerd's default, and asks containerd whether it
					// applies.
					theirs = "/etc/containerd/certs.d"
				}
				seen[theirs]++
				if onPurpose(version, files) {
					continue
				}
				assert.Equal(t, theirs, ours, "%v", files)
			}
			assert.Greater(t, len(seen), 2, "the configurations differ: %v", seen)
		})
	}
}

// containerdFiles returns a main file and three fragments, some of which the main file imports in one of several ways.
func containerdFiles(random *rand.Rand, form string) map[string]string {
	plugin := map[string]string{"2": "io.containerd.grpc.v1.cri", "3": "io.containerd.cri.v1.images"}[form]
	text := func(path string) string {
		out := "version = " + form + "\n"
		switch random.IntN(4) {
		case 0:
		case 1:
			out += fmt.Sprintf("[plugins.%q]\nmax_concurrent_downloads = 3\n", plugin)
		default:
			out += fmt.Sprintf("[plugins.%q.registry]\nconfig_path = %q\n", plugin, path)
		}
		return out
	}
	imports := []string{
		"", "", "imports = ['/etc/containerd/conf.d/*.toml']\n", "imports = ['conf.d/b.toml']\n",
		"imports = ['conf.d/b.toml', '/etc/containerd/conf.d/a.toml']\n", "imports = ['./conf.d/../conf.d/*.toml', 'config.toml']\n",
	}[random.IntN(6)]
	nested := ""
	if random.IntN(3) == 0 {
		nested = "imports = ['../nested.toml']\n"
	}
	return map[string]string{
		"config.toml": imports + text("/main"), "conf.d/a.toml": nested + text("/a"), "conf.d/b.toml": text("/b"),
		"nested.toml": text("/nested"), "conf.d/c.conf": text("/c"),
	}
}

// onPurpose reports intentional differences, which exist because a configuration does not show which containerd reads
// it: 1.x drops a plugin's table if a later file has other keys of it (CertsD.Ignored decides by the version of the
// running one), and 1.6 resolves a relative glob against its working directory.
func onPurpose(version node.Version, files map[string]string) bool {
	if version == node.Containerd2 {
		return false
	}
	if version == node.Containerd16 && strings.Contains(files["config.toml"], "'./") {
		return true
	}
	for _, text := range files {
		if strings.Contains(text, "max_concurrent_downloads") {
			return true
		}
	}
	return false
}

func dumpedConfigPath(t *testing.T, n *node.Node, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-euc", `
		mkdir -p /etc/containerd; mount --bind "$1" /etc/containerd
		exec "$2" --config /etc/containerd/config.toml config dump 2>/dev/null`, "sh", n.Path("etc/containerd"), program).Output()
	require.NoError(t, err)
	// The tables of streaming and transfer have keys with the same name; the pattern matches the one in the registry
	// table.
	found := regexp.MustCompile(`\.registry\]\s+config_path = ["'](.*)["']`).FindSubmatch(out)
	require.NotNil(t, found, "%s", out)
	return string(found[1])
}

func shownCertsD(t *testing.T, n *node.Node) string {
	t.Helper()
	r := n.Agent("config", "show", "--output", "json")
	require.Equal(t, 0, r.Code, r.Stderr)
	var all []struct{ Key, Value string }
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	for _, one := range all {
		if one.Key == "containerd.certsD" {
			return strings.TrimPrefix(one.Value, n.Root)
		}
	}
	require.Fail(t, "no containerd.certsD", r.Stdout)
	return ""
}
