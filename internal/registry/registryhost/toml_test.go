// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

// Every byte of a file is in one of its parts, and each result is valid TOML, for any input.
func FuzzHostsFile(f *testing.F) {
	for _, text := range hostsFiles {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			return
		}
		file, err := parseHostsFile(text)
		if err != nil {
			return
		}
		all := 0
		for _, part := range [][]statement{file.top, file.header, file.tables} {
			for _, s := range part {
				require.Contains(t, text, s.text)
				all += len(s.text)
			}
		}
		require.Len(t, text, all)
		var values map[string]any
		if err := toml.Unmarshal([]byte(file.withGate()), &values); err == nil {
			require.Contains(t, values, "host")
		}
		_ = file.withFallback(upstream{url: "https://registry.suse.com"})
	})
}

// The largest file is parsed or rejected in acceptable time, line by line.
func TestAValueOfManyLines(t *testing.T) {
	t.Parallel()
	text := "ca = [\n" + strings.Repeat("\"/a\",\n", (maxHosts-20)/6) + "]\n"
	file, err := parseHostsFile(text)
	require.NoError(t, err)
	require.Len(t, file.top, 1)
}

func TestHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	want := header{position: localregistry.Gate, registry: "mirror.example.com:5000", from: fromDefault, source: sum(nil)}
	data := want.withHeader("server = \"x\"\n")
	got, ours := headerOf(data)
	require.True(t, ours)
	require.Equal(t, want, got)
	for _, edited := range []string{string(data) + "\n", strings.Replace(string(data), `"x"`, `"y"`, 1)} {
		got, ours = headerOf([]byte(edited))
		if ours {
			require.True(t, got.edited)
		}
	}
	for _, foreign := range []string{"", "\n" + string(data), strings.Replace(string(data), "gate", "wall", 1)} {
		_, ours = headerOf([]byte(foreign))
		require.False(t, ours)
	}
}
