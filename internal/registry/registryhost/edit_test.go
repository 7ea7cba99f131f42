// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

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
