// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file that cannot be read to its end is rejected before containerd's parser opens it, for polls, pulls and doctor.
// If the parser read one, the test would not end.
func TestFilesThatHostsTOMLNames(t *testing.T) {
	t.Parallel()
	fifo := func(t *testing.T, path string) { t.Helper(); require.NoError(t, syscall.Mkfifo(path, 0o600)) }
	device := func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Symlink("/dev/zero", path)) }
	large := func(size int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
			require.NoError(t, os.Truncate(path, size))
		}
	}
	files := map[string]struct {
		toml, name string // hosts.toml, and another file
		make       func(t *testing.T, path string)
		want       string
	}{
		"a device by its path":         {toml: "ca = \"/dev/zero\"\n", want: "hosts.toml: /dev/zero: not a regular file"},
		"of a host":                    {toml: "[host.\"https://m1\"]\nca = [\"CA\", \"/dev/zero\"]\n", want: "/dev/zero: not a regular file"},
		"a link to a device":           {toml: "ca = \"x.pem\"\n", name: "x.pem", make: device, want: "x.pem: not a regular file"},
		"a FIFO":                       {toml: "ca = \"x.pem\"\n", name: "x.pem", make: fifo, want: "x.pem: not a regular file"},
		"a directory":                  {toml: "ca = \"..\"\n", want: "is a directory"}, // containerd's error
		"a directory, ignored file":    {toml: "ca = \"..\"\nheader = 3\n"},
		"a directory as Docker has it": {name: "x.crt", make: func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Mkdir(path, 0o700)) }},
		"a key in other letters":       {toml: "Ca = \"/dev/zero\"\n", want: "not a regular file"}, // as in containerd's parser
		"of a host, other letters":     {toml: "[host.\"https://m1\"]\ncLIENT = \"/dev/zero\"\n", want: "not a regular file"},
		"a FIFO for a certificate":     {toml: "client = \"x.pem\"\n", name: "x.pem", make: fifo, want: "x.pem: not a regular file"},
		"in a list of certificates":    {toml: "client = [\"CA\", \"x.pem\"]\n", name: "x.pem", make: fifo, want: "x.pem: not a regular file"},
		"a device for a key":           {toml: "[host.\"https://m1\"]\nclient = [[\"CA\", \"x.pem\"]]\n", name: "x.pem", make: device, want: "x.pem: not a regular file"},
		"too large":                    {toml: "ca = \"x.pem\"\n", name: "x.pem", make: large(maxBundle + 1), want: "x.pem: too large: 16777217 bytes, at most 16777216"},
		"a FIFO as Docker has it":      {toml: "not TOML", name: "x.crt", make: fifo, want: "x.crt: not a regular file"},
		"a device as Docker has it":    {name: "x.key", make: device, want: "x.key: not a regular file"},
		"a certificate, too large":     {name: "x.cert", make: large(maxBundle + 1), want: "x.cert: too large"},
		"hosts.toml is a FIFO":         {name: "hosts.toml", make: fifo, want: "hosts.toml: not a regular file"},
		"hosts.toml is a device":       {name: "hosts.toml", make: device, want: "hosts.toml: not a regular file"},
		"hosts.toml is too large":      {name: "hosts.toml", make: large(maxHostsFile + 1), want: "hosts.toml: too large: 1048577 bytes, at most 1048576"},
		"as large as it may be":        {toml: "ca = \"x.pem\"\n", name: "x.pem", make: large(maxBundle), want: "x.pem: no certificates"},
		"a file that is not there":     {toml: "ca = \"none.pem\"\n", want: "none.pem: no such file"},
		"a certificate, and nothing":   {toml: "ca = \"CA\"\n"},
	}
	for title, c := range files {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			ca, _, _ := certificate(t)
			root := t.TempDir()
			dir := filepath.Join(root, "mirror.example.com")
			require.NoError(t, os.Mkdir(dir, 0o755))
			if c.name != "hosts.toml" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(strings.ReplaceAll(c.toml, "CA", ca)), 0o600))
			}
			if c.make != nil {
				c.make(t, filepath.Join(dir, c.name))
			}
			_, err := New([]string{root}, untouched{}).Of("mirror.example.com")
			doctor := Dirs(t.Context(), []string{root})
			require.Len(t, doctor, 1)
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, doctor[0].Err)
				return
			}
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, doctor[0].Err, c.want)
		})
	}
}

// The directory for an IPv6 address has pattern characters in its name.
func TestFilesOfAnIPv6Host(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "[::1]_5000_")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "x.crt"), 0o600))
	_, err := New([]string{root}, untouched{}).Of("[::1]:5000")
	require.ErrorContains(t, err, "x.crt: not a regular file")
}
