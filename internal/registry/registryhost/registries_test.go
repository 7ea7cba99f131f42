// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

const suse = "registry.suse.com"

// certsD creates a certs.d directory with files by name.
func certsD(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs.d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o640))
	}
	return dir
}

// tree returns every file and directory below dir, with its mode and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		require.NoError(t, err)
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			text += " " + string(data)
		}
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		all[name] = text
		return nil
	}))
	return all
}

// hostsOf returns containerd's view of the hosts of a registry.
func hostsOf(t *testing.T, r Registries, registry string) []hosts.Host {
	t.Helper()
	dir, err := hosts.FindDir(r.Dirs, registry)
	require.NoError(t, err)
	found, err := hosts.Order(t.Context(), dir, registry)
	require.NoError(t, err)
	return found
}

func order(t *testing.T, r Registries, registry string) []string {
	t.Helper()
	return urls(hostsOf(t, r, registry))
}

func enable(t *testing.T, r Registries, registry string, position localregistry.Position) Change {
	t.Helper()
	c, err := r.Enable(t.Context(), registry, position)
	require.NoError(t, err)
	require.NoError(t, c.Write())
	return c
}

func disable(t *testing.T, r Registries, registry string) Change {
	t.Helper()
	c, err := r.Disable(t.Context(), registry)
	require.NoError(t, err)
	require.NoError(t, c.Write())
	return c
}

// hostsFiles are hosts.toml files as admins write them. CA is the path of an authority.
var hostsFiles = map[string]string{
	"server only": "server = \"https://registry.suse.com\"\n",
	"a mirror, and the server": `# our mirror
server = "https://registry.suse.com" # upstream

[host."https://mirror.example.com"] # in the cellar
  capabilities = ["pull", "resolve"]
`,
	"a mirror, no server":          "[host.\"https://mirror.example.com\"]\n  capabilities = [\"pull\"]",
	"the server is a host as well": "server = \"https://registry.suse.com\"\n[host.\"https://mirror.example.com\"]\n[host.\"https://registry.suse.com\"]\n",
	"no server, a host as well":    "[host.\"https://registry.suse.com\"]\n",
	"a server without its scheme":  "server = \"registry.suse.com\"\n",
	"all keys": `server = "https://proxy.example.com/suse"
capabilities = ["pull", "resolve"]
override_path = true
skip_verify = false
ca = ["CA",
  # of the year before
  "CA"]
dial_timeout = "2s"

[header]
  x-site = "one" # who
  x-list = ["a", "b"]

[host."https://m1.example.com:5000/v2/suse"]
  ca = "CA"
  override_path = true
  dial_timeout = "1s"
  [host."https://m1.example.com:5000/v2/suse".header]
    Authorization = "Basic xxx"

[host.'http://10.0.0.1:5000']
  skip_verify = true
`,
	"keys without a server":      "capabilities = [\"pull\"]\nskip_verify = true\nca = \"CA\"\n[host.\"https://m1\"]\n",
	"keys in other letters":      "Server = \"https://registry.suse.com\"\nCa = \"CA\"\n[Header]\nx = \"y\"\n",
	"dotted keys":                "server = \"https://registry.suse.com\"\nheader.x = \"y\"\nheader.z = [\"1\"]\n",
	"an inline table":            "server = \"https://registry.suse.com\"\nheader = { x = \"y\" }\n[host.\"https://m1\"]\nheader = { x = \"[z]\" }\n",
	"text in several lines":      "server = \"\"\"https://registry.suse.com\"\"\"\n[host.\"https://m1\".header]\nx = '''\n[host.\"https://no\"]\n'''\n",
	"carriage returns":           "server = \"https://registry.suse.com\"\r\n\r\n[host.\"https://m1\"]\r\n  capabilities = [\"pull\"]\r\n",
	"keys that are not known":    "server = \"https://registry.suse.com\"\nfoo = 1\n[bar]\nx = 1\n[host.\"https://m1\"]\n",
	"empty":                      "",
	"a comment":                  "# nothing yet\n",
	"a relative authority":       "server = \"https://registry.suse.com\"\nca = \"ca.pem\"\n[host.\"https://m1\"]\nca = \"ca.pem\"\n",
	"the end of line is missing": "server = \"https://registry.suse.com\"",
}

// The local registry is last or first, every other host is asked as before, and disabling restores each byte and mode.
func TestEnableAndDisable(t *testing.T) {
	t.Parallel()
	ca, _, _ := registrytest.Certificate(t)
	pem, err := os.ReadFile(ca)
	require.NoError(t, err)
	for name, text := range hostsFiles {
		for _, position := range []localregistry.Position{localregistry.Fallback, localregistry.Gate} {
			t.Run(name+", "+string(position), func(t *testing.T) {
				t.Parallel()
				dir := certsD(t, map[string]string{
					suse + "/hosts.toml": strings.ReplaceAll(text, "CA", ca), suse + "/ca.pem": string(pem),
				})
				r := Registries{Dirs: []string{dir}}
				before, hostsBefore := tree(t, dir), order(t, r, suse)

				c, err := r.Enable(t.Context(), suse, position)
				require.NoError(t, err)
				assert.Equal(t, before, tree(t, dir), "nothing is written before Write")
				require.NoError(t, c.Write())
				want := append(append([]string{}, hostsBefore...), localregistry.URL)
				if position == localregistry.Gate {
					want = append([]string{localregistry.URL}, hostsBefore...)
				}
				assert.Equal(t, want, order(t, r, suse))
				of, err := r.Of(t.Context(), suse)
				require.NoError(t, err)
				assert.Equal(t, Registration{Registry: suse, Position: position, File: c.File, Author: Agent}, of)

				enabled := tree(t, dir)
				again := enable(t, r, suse, position)
				assert.True(t, again.IsNone())
				assert.Equal(t, enabled, tree(t, dir))

				disable(t, r, suse)
				assert.Equal(t, before, tree(t, dir))
				assert.True(t, disable(t, r, suse).IsNone())
			})
		}
	}
}

// A changed position is computed from the admin's file, not from the generated one.
func TestThePositionCanBeChanged(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"a file":       {suse + "/hosts.toml": hostsFiles["all keys"]},
		"no directory": {},
		"a directory":  {suse + "/README": "nothing"},
		"_default":     {"_default/hosts.toml": "[host.\"https://mirror.example.com\"]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, _, _ := registrytest.Certificate(t)
			for file, text := range files {
				files[file] = strings.ReplaceAll(text, "CA", ca)
			}
			dir := certsD(t, files)
			r := Registries{Dirs: []string{dir}}
			before := tree(t, dir)
			hostsBefore := order(t, r, suse)
			first := enable(t, r, suse, localregistry.Fallback)
			enable(t, r, suse, localregistry.Gate)
			assert.Equal(t, append([]string{localregistry.URL}, hostsBefore...), order(t, r, suse))
			enable(t, r, suse, localregistry.Fallback)
			data, err := os.ReadFile(first.File)
			require.NoError(t, err)
			assert.Equal(t, string(first.After), string(data))
			disable(t, r, suse)
			assert.Equal(t, before, tree(t, dir))
		})
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{suse + "/hosts.toml": hostsFiles["a mirror, and the server"]})
	r := Registries{Dirs: []string{dir}}
	body := func(position localregistry.Position) string {
		c, err := r.Enable(t.Context(), suse, position)
		require.NoError(t, err)
		return string(c.After)
	}
	assert.Equal(t, `# image-update-agent: the node's local registry, fallback. Remove it: image-update-agent local-registry disable registry.suse.com --write
server = "http://127.0.0.1:334"
capabilities = ["pull", "resolve"]
#| # our mirror
#| server = "https://registry.suse.com" # upstream
#| 
# image-update-agent: end
[host."https://mirror.example.com"] # in the cellar
  capabilities = ["pull", "resolve"]
# image-update-agent: the node's local registry, fallback. Remove it: image-update-agent local-registry disable registry.suse.com --write
[host."https://registry.suse.com"]
dial_timeout = "2s"
# image-update-agent: end
`, body(localregistry.Fallback))
	assert.Equal(t, `# our mirror
server = "https://registry.suse.com" # upstream

# image-update-agent: the node's local registry, gate. Remove it: image-update-agent local-registry disable registry.suse.com --write
[host."http://127.0.0.1:334"]
capabilities = ["pull", "resolve"]
# image-update-agent: end
[host."https://mirror.example.com"] # in the cellar
  capabilities = ["pull", "resolve"]
`, body(localregistry.Gate))
}

func TestRegistriesOfAnyName(t *testing.T) {
	t.Parallel()
	for registry, last := range map[string]string{
		"registry.suse.com": "https://registry.suse.com", "docker.io": "https://registry-1.docker.io",
		"mirror.example.com:5000": "https://mirror.example.com:5000", "localhost": "https://localhost",
		"127.0.0.1:5000": "https://127.0.0.1:5000", "localhost:80": "http://localhost:80",
	} {
		for _, position := range []localregistry.Position{localregistry.Fallback, localregistry.Gate} {
			r := Registries{Dirs: []string{certsD(t, nil)}}
			require.Equal(t, []string{last}, order(t, r, registry))
			enable(t, r, registry, position)
			want := []string{last, localregistry.URL}
			if position == localregistry.Gate {
				want = []string{localregistry.URL, last}
			}
			assert.Equal(t, want, order(t, r, registry))
			found, err := r.Enabled(t.Context())
			require.NoError(t, err)
			require.Len(t, found, 1)
			assert.Equal(t, registry, found[0].Registry)
			disable(t, r, registry)
			assert.Empty(t, tree(t, r.Dirs[0]))
		}
	}
}

// containerd reads the first of its directories that has the registry, or _default.
func TestDirectoryThatContainerdUses(t *testing.T) {
	t.Parallel()
	const mirror = "[host.\"https://mirror.example.com\"]\n"
	for name, c := range map[string]struct {
		first, second map[string]string
		want          string // the file's place, below the directories' parent
	}{
		"none":                       {nil, nil, "first/" + suse},
		"the second":                 {nil, map[string]string{suse + "/hosts.toml": mirror}, "second/" + suse},
		"_default before it":         {map[string]string{"_default/hosts.toml": mirror}, map[string]string{suse + "/hosts.toml": "# no\n"}, "first/" + suse},
		"_default of the second":     {nil, map[string]string{"_default/hosts.toml": mirror}, "second/" + suse},
		"the first, with both files": {map[string]string{suse + "/hosts.toml": mirror}, map[string]string{suse + "/hosts.toml": "# no\n"}, "first/" + suse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			r := Registries{Dirs: []string{filepath.Join(root, "first"), filepath.Join(root, "second")}}
			for i, files := range []map[string]string{c.first, c.second} {
				require.NoError(t, os.Mkdir(r.Dirs[i], 0o755))
				require.NoError(t, os.CopyFS(r.Dirs[i], os.DirFS(certsD(t, files))))
			}
			before, hostsBefore := tree(t, root), order(t, r, suse)
			change := enable(t, r, suse, localregistry.Fallback)
			assert.Equal(t, filepath.Join(root, c.want, "hosts.toml"), change.File)
			assert.Equal(t, append(hostsBefore, localregistry.URL), order(t, r, suse))
			disable(t, r, suse)
			assert.Equal(t, before, tree(t, root))
		})
	}
}

// A file for the registry hides _default, so it has that one's content, and reports when that has changed.
func TestDefaultIsCarriedOver(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{"_default/hosts.toml": "[host.\"https://mirror.example.com\"]\n"})
	r := Registries{Dirs: []string{dir}}
	c := enable(t, r, suse, localregistry.Fallback)
	assert.Equal(t, []string{"https://mirror.example.com", "https://registry.suse.com", localregistry.URL}, order(t, r, suse))
	require.NotEmpty(t, c.Notes)
	assert.Contains(t, c.Notes[0], "enable registry.suse.com again")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "_default/hosts.toml"), []byte("[host.\"https://other.example.com\"]\n"), 0o600))
	of, err := r.Of(t.Context(), suse)
	require.NoError(t, err)
	assert.True(t, of.Outdated)
	enable(t, r, suse, localregistry.Fallback)
	assert.Equal(t, []string{"https://other.example.com", "https://registry.suse.com", localregistry.URL}, order(t, r, suse))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "_default")))
	enable(t, r, suse, localregistry.Fallback)
	assert.Equal(t, []string{"https://registry.suse.com", localregistry.URL}, order(t, r, suse))
	disable(t, r, suse)
	assert.Empty(t, tree(t, dir))
}

// With the local registry last, enable says how long containerd waits for each host before it, and why that matters.
func TestTimeoutsAreExplained(t *testing.T) {
	t.Parallel()
	const ours, mirrors = `dial_timeout = "2s": kubelet pulls`, " has no dial_timeout: behind a network"
	for name, c := range map[string]struct {
		source   string
		position localregistry.Position
		want     []string
	}{
		"no file":               {"", localregistry.Fallback, []string{ours}},
		"the server's own":      {"server = \"https://s\"\nDial_Timeout = \"9s\"\n[host]\n", localregistry.Fallback, nil},
		"a mirror's own":        {"[host.\"https://m\"]\ndial_timeout = \"9s\"\n", localregistry.Fallback, []string{ours}},
		"a mirror without one":  {"[host.\"https://u:p@m\"]\n", localregistry.Fallback, []string{ours, "@m" + mirrors}},
		"as gate, none matters": {"[host.\"https://m\"]\n", localregistry.Gate, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			if c.source != "" {
				files[suse+"/hosts.toml"] = c.source
			}
			change, err := Registries{Dirs: []string{certsD(t, files)}}.Enable(t.Context(), suse, c.position)
			require.NoError(t, err)
			require.Len(t, change.Notes, len(c.want), change.Notes)
			for i, want := range c.want {
				assert.Contains(t, change.Notes[i], want)
				assert.NotContains(t, change.Notes[i], "u:p")
			}
		})
	}
}
