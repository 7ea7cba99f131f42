// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sizes as people write them, in bytes.
var sizes = map[string]int64{
	"0": 0, "0B": 0, "0KiB": 0, "1": 1, "17B": 17,
	"500KB": 500_000, "500KiB": 512_000, "3MB": 3_000_000, "20MiB": 20_971_520,
	"2GB": 2_000_000_000, "1GiB": 1_073_741_824, "5TB": 5_000_000_000_000, "1TiB": 1_099_511_627_776,
	"9223372036854775807": 9_223_372_036_854_775_807, "8388607TiB": 8_388_607 << 40,
}

// noSizes are ambiguous or meaningless sizes.
var noSizes = []string{
	"", " ", "B", "KiB", "i", "1K", "1k", "1M", "20m", "1G", "1T", "1Mi", "20mib", "20Mib", "20 MiB", " 20MiB", "20MiB ",
	"-1", "+1", "-1MiB", "010", "0x10", "1e3", "1_000", "1,5GiB", "1.5GiB", "1.0", ".5", "MiB20", "1BB", "1KiBB", "1PiB",
	"9223372036854775808", "8388608TiB", "99999999999999999999999", "٣MiB", "infinity",
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range sizes {
		got, err := parseSize(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range noSizes {
		got, err := parseSize(text)
		require.Error(t, err, "%q: %d", text, got)
	}
}

// An accepted size is its number times its unit, without overflow.
func TestSizesAreExact(t *testing.T) {
	t.Parallel()
	names := make([]string, 0, len(units))
	for name := range units {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		unit := rapid.SampledFrom(names).Draw(t, "unit")
		got, err := parseSize(strconv.FormatInt(n, 10) + unit)
		if err == nil {
			require.Equal(t, n, got/units[unit])
			require.Zero(t, got%units[unit])
			return
		}
		require.Less(t, n*units[unit]/units[unit], n, "refused without need")
	})
}

func TestSizesHaveBounds(t *testing.T) {
	t.Parallel()
	check := func(text string) error {
		_, err := size(text, []string{"16KiB", "1TiB", "off"})
		return err
	}
	for _, text := range []string{"0", "0MiB", "16KiB", "16384", "17KB", "1TiB", "1099511627776"} {
		require.NoError(t, check(text), text)
	}
	for _, text := range []string{"1", "16383", "16KB", "1099511627777", "2TB", "1025GiB"} {
		require.EqualError(t, check(text), "want a size from 16KiB to 1TiB, or 0: off", text)
	}
	require.EqualError(t, check("16 KiB"), "want a size such as 20MiB, 1GiB, 500KB, or bytes; 0: off")
}

// slow computes the Levenshtein distance by its definition.
func slow(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	case a[0] == b[0]:
		return slow(a[1:], b[1:])
	}
	return 1 + min(slow(a[1:], b), slow(a, b[1:]), slow(a[1:], b[1:]))
}

func TestDistance(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		require.Equal(t, slow(a, b), distance(a, b))
	})
	assert.Greater(t, distance(strings.Repeat("a", 1<<20), "a"), 64)
}
