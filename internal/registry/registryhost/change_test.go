// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
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

// Until the first release a generated file had a header, and the admin's file was kept beside it.
func TestFilesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	const body = "server = \"http://127.0.0.1:334\"\ncapabilities = [\"pull\", \"resolve\"]\n\n[host.\"https://registry.suse.com\"]\n"
	made := func(from string) string {
		return "# image-update-agent: the node's local registry, fallback. Remove it: image-update-agent local-registry disable registry.suse.com --write\n" +
			"# Made from " + from + ", sha256:" + sum(nil) + ". Below this line: sha256:" + sum([]byte(body)) + "\n" + body
	}
	const mine = "server = \"https://registry.suse.com\" # mine\n"
	for name, c := range map[string]struct {
		files, want map[string]string
		refused     string
	}{
		"the admin's": {
			map[string]string{suse + "/hosts.toml": made(besideEarlier), suse + "/" + besideEarlier: mine},
			map[string]string{suse + "/hosts.toml": mine},
			"",
		},
		"no directory":     {map[string]string{suse + "/hosts.toml": made("no directory of its own")}, nil, ""},
		"no file":          {map[string]string{suse + "/hosts.toml": made("no hosts.toml"), suse + "/README": ""}, map[string]string{suse + "/README": ""}, ""},
		"of _default":      {map[string]string{suse + "/hosts.toml": made("_default/hosts.toml")}, nil, ""},
		"it was edited":    {map[string]string{suse + "/hosts.toml": made("no hosts.toml") + "# mine\n"}, nil, "was edited"},
		"the kept is gone": {map[string]string{suse + "/hosts.toml": made(besideEarlier)}, nil, "which is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Registries{Dirs: []string{certsD(t, c.files)}}
			change, err := r.Disable(t.Context(), suse)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.NoError(t, change.Write())
			assert.Equal(t, tree(t, certsDOrNone(t, c.want)), tree(t, r.Dirs[0]))

			r = Registries{Dirs: []string{certsD(t, c.files)}}
			enable(t, r, suse, localregistry.Gate)
			assert.Equal(t, []string{localregistry.URL, "https://registry.suse.com"}, order(t, r, suse))
			disable(t, r, suse)
			assert.Equal(t, tree(t, certsDOrNone(t, c.want)), tree(t, r.Dirs[0]))
		})
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

// A run that was killed before it has named a new directory is completed by the next one.
func TestInterruptedChange(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{hiddenName(suse) + "/hosts.toml": "half"})
	r := Registries{Dirs: []string{dir}}
	assert.Equal(t, []string{"https://registry.suse.com"}, order(t, r, suse))
	enable(t, r, suse, localregistry.Fallback)
	disable(t, r, suse)
	assert.Empty(t, tree(t, dir))
}

func TestNames(t *testing.T) {
	t.Parallel()
	dir := certsD(t, map[string]string{
		suse + "/hosts.toml": "# all\n", "docker.io/hosts.toml": "no TOML", "quay.io/hosts.toml": "[host.\"https://m\"]\n",
	})
	r := Registries{Dirs: []string{dir, filepath.Join(dir, "none")}}
	before := tree(t, dir)
	enable(t, r, suse, localregistry.Fallback)
	enable(t, r, "ghcr.io", localregistry.Gate)
	names, err := r.Names(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"ghcr.io", suse}, names)
	for _, name := range names {
		disable(t, r, name)
	}
	assert.Equal(t, before, tree(t, dir))
}
