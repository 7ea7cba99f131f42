// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	file := suse + "/hosts.toml"
	for name, c := range map[string]struct {
		files map[string]string
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"no TOML":                      {files: map[string]string{file: "server = \n"}, want: "not TOML: line 1, column 10"},
		"a server with brackets":       {files: map[string]string{file: "server = \"https://[::1]:5000\"\n"}, want: "table for https://[::1]:5000, which has brackets in its name: name the server by its host name, or use --gate"},
		"a password as a key, twice":   {files: map[string]string{file: "s3cr3t = 1\ns3cr3t = 2\n"}, want: "not TOML: line 2, column 1"},
		"an authority that is missing": {files: map[string]string{file: "ca = \"none.pem\"\n"}, want: "DIR/registry.suse.com/none.pem: no such file"},
		"an authority somewhere else":  {files: map[string]string{file: "ca = \"../ca.pem\"\n", "ca.pem": "CA"}, want: "no such file"},
		"hosts in dotted keys":         {files: map[string]string{file: "host.\"https://m\".capabilities = [\"pull\"]\n"}, want: ""},
		"the local registry by hand":   {files: map[string]string{file: "[host.\"" + localregistry.URL + "\"]\n[host.\"https://m\"]\n"}, want: "already names the local registry"},
		"a symlink": {files: map[string]string{"common.toml": "# all\n", suse + "/README": ""}, spoil: func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("../common.toml", filepath.Join(dir, file)))
		}, want: "symlink"},
		"a symlink to a directory": {files: map[string]string{"shared/hosts.toml": "# all\n"}, spoil: func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("shared", filepath.Join(dir, suse)))
		}, want: "a symlink: enable the local registry"},
		"others may write": {files: map[string]string{file: "# all\n"}, spoil: func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, file), 0o666))
		}, want: "others may write to it"},
		"a FIFO": {files: map[string]string{suse + "/README": ""}, spoil: func(t *testing.T, dir string) {
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, file), 0o600))
		}, want: "fifo"},
		"too large":                   {files: map[string]string{file: strings.Repeat("#\n", maxHosts)}, want: "too large"},
		"Docker's files":              {files: map[string]string{suse + "/ca.crt": "CA"}, want: "only while there is no hosts.toml"},
		"Docker's files of _default":  {files: map[string]string{"_default/x.cert": "CA"}, want: "only while there is no hosts.toml"},
		"a relative name in _default": {files: map[string]string{"_default/hosts.toml": "ca = \"ca.pem\"\n", "_default/ca.pem": "CA"}, want: "give its full path"},
		"a block without an end":      {files: map[string]string{file: marks{position: localregistry.Gate, registry: suse}.line() + "# x\n"}, want: "has no end: remove the lines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, _, _ := registrytest.Certificate(t)
			pem, err := os.ReadFile(ca)
			require.NoError(t, err)
			for name, content := range c.files {
				if content == "CA" {
					c.files[name] = string(pem)
				}
			}
			dir := certsD(t, c.files)
			if c.spoil != nil {
				c.spoil(t, dir)
			}
			r := Registries{Dirs: []string{dir}}
			before := tree(t, dir)
			_, err = r.Enable(t.Context(), suse, localregistry.Fallback)
			assert.Equal(t, before, tree(t, dir))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, strings.ReplaceAll(c.want, "DIR", dir))
			require.ErrorIs(t, err, release.ErrHeld)
			assert.NotContains(t, err.Error(), "/image-update-agent-", "the name of a temporary file")
		})
	}
}

// A file in which containerd would find other hosts, or ask one of them differently, is not written.
func TestOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	read := func(text string) []hosts.Host {
		order, err := orderOf(t.Context(), t.TempDir(), []byte(text), suse)
		require.NoError(t, err)
		return order
	}
	const own, mirror = "[host.\"" + localregistry.URL + "\"]\n", "[host.\"https://m1\"]\n"
	before := read(mirror)
	require.NoError(t, sameBut(before, read(own+mirror), localregistry.Gate))
	require.NoError(t, sameBut(before, read("server = \""+localregistry.URL+"\"\n"+mirror+"[host.\"https://registry.suse.com\"]\n"), localregistry.Fallback))
	for name, after := range map[string]string{
		"without the local registry": mirror,
		"in another position":        mirror + own,
		"another one in its place":   "[host.\"https://m2\"]\n" + mirror,
		"one is missing":             own,
		"one more":                   own + mirror + "[host.\"https://m2\"]\n",
		"another host":               own + "[host.\"https://m2\"]\n",
		"another scheme":             own + "[host.\"http://m1\"]\n",
		"another path":               own + "[host.\"https://m1/x\"]\n",
		"other capabilities":         own + mirror + "capabilities = [\"pull\"]\n",
		"not verified any more":      own + mirror + "skip_verify = true\n",
		"with another header":        own + mirror + "header = { x = \"y\" }\n",
		"another way to upstream":    "skip_verify = true\n" + own + mirror,
	} {
		assert.Error(t, sameBut(before, read(after), localregistry.Gate), name)
	}
}

func TestInvalidRegistryNames(t *testing.T) {
	t.Parallel()
	r := Registries{Dirs: []string{t.TempDir()}}
	for _, name := range []string{"", "_default", "velum", "..", "../etc", "a/b", "https://registry.suse.com", "registry.suse.com/", "x y", "-x.com", "index.docker.io", "a.b:c"} {
		_, err := r.Enable(t.Context(), name, localregistry.Gate)
		require.ErrorIs(t, err, localregistry.ErrNoRegistry, name)
		_, err = r.Disable(t.Context(), name)
		require.ErrorIs(t, err, localregistry.ErrNoRegistry, name)
		_, err = r.Of(t.Context(), name)
		require.ErrorIs(t, err, localregistry.ErrNoRegistry, name)
	}
}

// A person's edit of the agent's own lines is neither replaced nor removed.
func TestEditIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files     map[string]string
		old, mine string
	}{
		"a key":               {map[string]string{suse + "/hosts.toml": "# all\n"}, dialTimeout, "3s"},
		"in a new file":       {nil, dialTimeout, "3s"},
		"the server":          {nil, "server = \"" + localregistry.URL + "\"", "server = \"https://registry.suse.com\""},
		"a line of the admin": {map[string]string{suse + "/hosts.toml": "ca = \"ca.pem\"\n", suse + "/ca.pem": "CA"}, was + "ca = \"ca.pem\"\n", ""},
		"a new line":          {nil, end, "# mine\n" + end},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, _, _ := registrytest.Certificate(t)
			for name, content := range c.files {
				if content == "CA" {
					c.files[name] = registrytest.Text(t, ca)
				}
			}
			dir := certsD(t, c.files)
			r := Registries{Dirs: []string{dir}}
			change := enable(t, r, suse, localregistry.Fallback)
			text := strings.Replace(string(change.After), c.old, c.mine, 1)
			require.NotEqual(t, string(change.After), text)
			require.NoError(t, os.WriteFile(change.File, []byte(text), 0o600))
			before := tree(t, dir)
			_, err := r.Disable(t.Context(), suse)
			require.ErrorIs(t, err, release.ErrHeld)
			require.ErrorContains(t, err, "was edited: remove the lines of image-update-agent")
			_, err = r.Enable(t.Context(), suse, localregistry.Gate)
			require.ErrorContains(t, err, "was edited")
			names, err := r.Names(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{suse}, names)
			assert.Equal(t, before, tree(t, dir))
			of, err := r.Of(t.Context(), suse)
			require.NoError(t, err)
			assert.Equal(t, Edited, of.Author)
		})
	}
}

// What a person adds beside the agent's lines stays, also in a file that the agent has made.
func TestEditBesideTheBlockStays(t *testing.T) {
	t.Parallel()
	const mine = "[host.\"https://mirror.example.com\"]\n"
	for name, files := range map[string]map[string]string{
		"a file": {suse + "/hosts.toml": "# all\n"}, "no directory": nil, "a directory": {suse + "/README": ""},
		"a copy of _default": {"_default/hosts.toml": "# all\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := certsD(t, files)
			r := Registries{Dirs: []string{dir}}
			c := enable(t, r, suse, localregistry.Fallback)
			require.NoError(t, os.WriteFile(c.File, append(c.After, mine...), 0o640))
			of, err := r.Of(t.Context(), suse)
			require.NoError(t, err)
			assert.Equal(t, Registration{Registry: suse, Position: localregistry.Fallback, File: c.File, Author: Agent}, of)
			enable(t, r, suse, localregistry.Gate)
			assert.Equal(t, []string{localregistry.URL, "https://mirror.example.com", "https://registry.suse.com"}, order(t, r, suse))
			disable(t, r, suse)
			data, err := os.ReadFile(c.File)
			require.NoError(t, err)
			all := ""
			if len(files) > 0 && name != "a directory" {
				all = "# all\n"
			}
			assert.Equal(t, all+mine, string(data))
		})
	}
}

// A file that another program writes is shown, and not written.
func TestGeneratedFileIsNotWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"# File generated by k3s. DO NOT EDIT.\nserver = \"https://registry.suse.com\"\n": true,
		"# Generated file, do not modify\n":                                               true,
		"# our mirrors\nserver = \"https://registry.suse.com\"\n":                         false,
	} {
		dir := certsD(t, map[string]string{suse + "/hosts.toml": text})
		c, err := Registries{Dirs: []string{dir}}.Enable(t.Context(), suse, localregistry.Gate)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Contains(strings.Join(c.Notes, "\n"), "another program writes"), text)
		before := tree(t, dir)
		state := t.TempDir()
		remembered, err := Memory{Dir: state}.CarryOut(c)
		assert.Equal(t, !want, remembered)
		if want {
			require.ErrorIs(t, err, release.ErrHeld)
			assert.Equal(t, before, tree(t, dir))
			assert.Empty(t, tree(t, state))
		} else {
			require.NoError(t, err)
		}
	}
}

// An edit between the reading and the writing is a conflict.
func TestConcurrentEditIsAConflict(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{suse + "/hosts.toml": "# all\n"})
	r := Registries{Dirs: []string{dir}}
	c, err := r.Enable(t.Context(), suse, localregistry.Fallback)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.File, []byte("# another\n"), 0o600))
	require.ErrorIs(t, c.Write(), nodefile.ErrConflict)
}

// A person may add the local registry without the agent, which then changes nothing.
func TestTheLocalRegistryByHand(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{suse + "/hosts.toml": "[host.\"" + localregistry.URL + "\"]\n"})
	r := Registries{Dirs: []string{dir}}
	found, err := r.Enabled(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, Person, found[0].Author)
	assert.Equal(t, localregistry.Gate, found[0].Position)
	assert.True(t, enable(t, r, suse, localregistry.Gate).IsNone())
	_, err = r.Disable(t.Context(), suse)
	require.ErrorContains(t, err, "remove http://127.0.0.1:334 by hand")
}

func TestNames(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{
		suse + "/hosts.toml": "# all\n", "docker.io/hosts.toml": "no TOML", "quay.io/hosts.toml": "[host.\"https://m\"]\n",
	})
	r := Registries{Dirs: []string{dir, filepath.Join(dir, "none")}}
	const ofDir, ofFile = "mirror.example.com", "other.example.com"
	require.NoError(t, os.Symlink("ghcr.io", filepath.Join(dir, ofDir)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ofFile), 0o755))
	require.NoError(t, os.Symlink("../ghcr.io/hosts.toml", filepath.Join(dir, ofFile, "hosts.toml")))
	before := tree(t, dir)
	enable(t, r, suse, localregistry.Fallback)
	enable(t, r, "ghcr.io", localregistry.Gate)
	for _, linked := range []string{ofDir, ofFile} {
		of, err := r.Of(t.Context(), linked)
		require.NoError(t, err)
		assert.Equal(t, Registration{
			Registry: linked, Position: localregistry.Gate, File: filepath.Join(dir, linked, "hosts.toml"),
		}, of, "a symlink to an enabled one")
	}
	names, err := r.Names(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"ghcr.io", suse}, names)
	for _, name := range names {
		disable(t, r, name)
	}
	assert.Equal(t, before, tree(t, dir))
}

// Every byte of a file is in one of its statements, and restore returns the file, for any input.
func FuzzHostsFile(f *testing.F) {
	for _, text := range hostsFiles {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 || strings.Contains(text, "image-update-agent") {
			return
		}
		file, err := parseHostsFile(text)
		if err != nil {
			return
		}
		require.Equal(t, text, textOf(file.all))
		for _, position := range []localregistry.Position{localregistry.Gate, localregistry.Fallback} {
			m := marks{position: position, registry: "mirror.example.com:5000"}
			edited := file.edit(m, upstream{url: "https://registry.suse.com"})
			admins, is, found, err := restore(edited)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, m, is.marks)
			require.Equal(t, text, admins)
			var values map[string]any
			if err := toml.Unmarshal([]byte(edited), &values); err == nil {
				require.Contains(t, values, "host")
			}
		}
	})
}

// The largest file is parsed or rejected in acceptable time, line by line.
func TestAValueOfManyLines(t *testing.T) {
	t.Parallel()
	text := "ca = [\n" + strings.Repeat("\"/a\",\n", (maxHosts-20)/6) + "]\n"
	file, err := parseHostsFile(text)
	require.NoError(t, err)
	require.Len(t, file.all, 1)
}

// asRKE2 writes the hosts.toml files of a registries.yaml as RKE2 does at its start: the endpoints, and the registry as
// the server after them, which replaces a last endpoint with the same URL (pkg/agent/containerd of k3s, getHostConfigs,
// and its HostsTomlTemplate).
func asRKE2(t *testing.T, certsD, registries string) {
	t.Helper()
	var file struct {
		Mirrors map[string]struct {
			Endpoint []string `yaml:"endpoint"`
		} `yaml:"mirrors"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(registries), &file))
	for name, mirror := range file.Mirrors {
		server := "https://" + name + "/v2"
		text := "# File generated by rke2. DO NOT EDIT.\n\nserver = \"" + server +
			"\"\ncapabilities = [\"pull\", \"resolve\", \"push\"]\n\n[host]\n"
		for n, e := range mirror.Endpoint {
			if e+"/v2" != server || n < len(mirror.Endpoint)-1 {
				text += fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", e+"/v2")
			}
		}
		require.NoError(t, os.MkdirAll(filepath.Join(certsD, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(certsD, name, hostsTOML), []byte(text), 0o600))
	}
}

// RKE2 would overwrite the file: nothing is written, and the printed lines make RKE2 name the local registry at the
// wanted position, with the existing mirrors.
func TestLinesForRKE2(t *testing.T) {
	t.Parallel()
	const registry = "registry.suse.com"
	for name, before := range map[string]string{
		"no mirror": "", "a mirror": "mirrors: {registry.suse.com: {endpoint: [\"https://m1.example.com\"]}}\n",
		"two": "mirrors: {registry.suse.com: {endpoint: [\"https://m1.example.com\", \"http://m2.example.com:5000\"]}}\n",
	} {
		for _, position := range []localregistry.Position{localregistry.Gate, localregistry.Fallback} {
			t.Run(name+", "+string(position), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				rke2 := platform.Named("", "rke2")
				r := Registries{Dirs: []string{dir}, Writer: &rke2}
				asRKE2(t, dir, before)
				was, _ := os.ReadFile(filepath.Join(dir, registry, hostsTOML))

				_, err := r.Enable(t.Context(), registry, position)

				require.ErrorIs(t, err, release.ErrHeld)
				require.ErrorContains(t, err, "/etc/rancher/rke2/registries.yaml: ")
				now, _ := os.ReadFile(filepath.Join(dir, registry, hostsTOML))
				assert.Equal(t, was, now)
				lines := err.Error()[strings.Index(err.Error(), "mirrors:"):]
				lines = lines[:strings.Index(lines, "then restart")]
				var made *MadeOfError
				require.ErrorAs(t, err, &made)
				assert.Equal(t, made.Lines, lines)
				asRKE2(t, dir, lines)
				found, err := r.Of(t.Context(), registry)
				require.NoError(t, err)
				assert.Equal(t, position, found.Position, lines)
				for _, mirror := range []string{"https://m1.example.com", "http://m2.example.com:5000"} {
					assert.Equal(t, strings.Contains(before, mirror), strings.Contains(lines, mirror), lines)
				}

				c, err := r.Enable(t.Context(), registry, position)
				require.NoError(t, err, "now it is only remembered")
				assert.True(t, c.IsNone())
			})
		}
	}
}

// The files of an earlier version, which wrote whole ones and kept the admin's beside them, are disabled, enabled and
// shown as one's own.
func TestFilesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	const (
		file, kept = suse + "/hosts.toml", suse + "/" + keptFile
		old        = "# image-update-agent: the node's local registry, fallback. Remove it: image-update-agent local-registry " +
			"disable registry.suse.com --write\n# Made from SOURCE. Below this line: sha256:SUM\n"
		body = "server = \"http://127.0.0.1:334\"\ncapabilities = [\"pull\", \"resolve\"]\n" +
			"[host.\"https://registry.suse.com\"]\ndial_timeout = \"2s\"\n"
		mine = "server = \"https://registry.suse.com\"\n"
	)
	written := func(source, from string) string {
		return strings.NewReplacer("SOURCE", source+", sha256:"+sum([]byte(from)), "SUM", sum([]byte(body))).Replace(old) + body
	}
	for name, c := range map[string]struct {
		before, files map[string]string
		outdated      bool
		open          string // the file that others may write to
		refused       string
		author        Author
	}{
		"a file":              {before: map[string]string{file: mine}, files: map[string]string{file: written(keptFile, mine), kept: mine}},
		"an edited kept file": {before: map[string]string{file: mine}, files: map[string]string{file: written(keptFile, ""), kept: mine}, outdated: true},
		"no file":             {before: map[string]string{suse + "/README": ""}, files: map[string]string{file: written("no hosts.toml", ""), suse + "/README": ""}},
		"no directory":        {files: map[string]string{file: written("no directory of its own", "")}},
		"a copy of _default": {
			before: map[string]string{"_default/hosts.toml": mine},
			files:  map[string]string{file: written("_default/hosts.toml", mine), "_default/hosts.toml": mine},
		},
		"a copy of a changed _default": {
			before: map[string]string{"_default/hosts.toml": mine}, outdated: true,
			files: map[string]string{file: written("_default/hosts.toml", ""), "_default/hosts.toml": mine},
		},
		"a kept file that is gone": {files: map[string]string{file: written(keptFile, mine)}, refused: "which is gone: remove the lines", author: Agent},
		"an unsafe kept file":      {files: map[string]string{file: written(keptFile, mine), kept: mine}, open: kept, refused: kept + ": ", author: Agent},
		"an unsafe file":           {files: map[string]string{file: written("no hosts.toml", "")}, open: file, refused: "others may write"},
		"an unsafe _default": {
			files: map[string]string{file: written("_default/hosts.toml", mine), "_default/hosts.toml": mine},
			open:  "_default/hosts.toml", refused: "_default/hosts.toml: ", author: Agent,
		},
		"an edited file":         {files: map[string]string{file: written("no hosts.toml", "") + "# mine\n"}, refused: "was edited or copied: remove the lines", author: Edited},
		"that of another":        {files: map[string]string{file: strings.Replace(written("no hosts.toml", ""), suse, "ghcr.io", 1)}, refused: "was edited or copied", author: Edited},
		"nearly the kept file's": {files: map[string]string{file: written("hosts-toml.before-local-registry", mine), kept: mine}, refused: "has no end", author: Edited},
		"an edited file, a kept one": {
			files:   map[string]string{file: written(keptFile, mine) + "# mine\n", kept: mine},
			refused: "make the edit in hosts.toml.before-local-registry beside it, and rename that to hosts.toml", author: Edited,
		},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, enabled again: %t", name, again), func(t *testing.T) {
				t.Parallel()
				dir := certsD(t, c.files)
				if c.open != "" {
					require.NoError(t, os.Chmod(filepath.Join(dir, c.open), 0o666))
				}
				r := Registries{Dirs: []string{dir}}
				found, err := r.Of(t.Context(), suse)
				require.NoError(t, err)
				assert.Equal(t, localregistry.Fallback, found.Position, "containerd asks it")
				if c.refused != "" {
					assert.Equal(t, c.author, found.Author)
					assert.False(t, found.Outdated)
					names, err := r.Names(t.Context())
					require.NoError(t, err)
					assert.Contains(t, names, suse)
					require.ErrorContains(t, errors.New(found.Error), c.refused)
					_, err = r.Disable(t.Context(), suse)
					require.ErrorIs(t, err, release.ErrHeld)
					return
				}
				assert.Equal(t, Registration{
					Registry: suse, Position: localregistry.Fallback, File: filepath.Join(dir, file), Author: Agent, Outdated: c.outdated,
				}, found)
				if again {
					enable(t, r, suse, localregistry.Gate)
					assert.NoFileExists(t, filepath.Join(dir, kept))
					assert.Equal(t, []string{localregistry.URL, "https://registry.suse.com"}, order(t, r, suse))
				}
				disable(t, r, suse)
				assert.Equal(t, tree(t, certsD(t, c.before)), tree(t, dir))
			})
		}
	}
}
