// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDatesMatchPyYAML compares with PyYAML's own safe loader.
func TestDatesMatchPyYAML(t *testing.T) {
	t.Parallel()
	texts := []string{"2024-02-29", "2023-02-29", "2026-1-1", "2026-01-01t1:00:00", "2026-01-01  1:00:00 Z"}
	digits := func(least, most int) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), least, most, -1)
	}
	generated := rapid.Custom(func(t *rapid.T) string {
		text := digits(3, 5).Draw(t, "year") + "-" + digits(1, 2).Draw(t, "month") + "-" + digits(1, 2).Draw(t, "day")
		if !rapid.Bool().Draw(t, "time") {
			return text
		}
		text += rapid.SampledFrom([]string{"T", "t", " ", "  "}).Draw(t, "between") +
			digits(1, 2).Draw(t, "hour") + ":" + digits(2, 2).Draw(t, "minute") + ":" + digits(2, 2).Draw(t, "second")
		return text + rapid.SampledFrom([]string{"", "Z", " Z", ".5", "+1", "-23:59", "+24:00", " +9:99", "-99"}).Draw(t, "zone")
	})
	for i := range 2000 {
		texts = append(texts, generated.Example(i))
	}
	child := exec.Command(python3, "-c", `
import sys, yaml
for line in sys.stdin:
    try:
        yaml.safe_load("a: " + line)
        print("yes")
    except ValueError:
        print("no")
`)
	child.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	out, err := child.Output()
	require.NoError(t, err, "the tests need python3 and python3-yaml")
	verdicts := strings.Fields(string(out))
	require.Len(t, verdicts, len(texts))
	refused := 0
	for i, text := range texts {
		assert.Equal(t, verdicts[i] == "no", isImpossibleDate(text), "%q", text)
		if verdicts[i] == "no" {
			refused++
		}
	}
	assert.Greater(t, refused, 100)
}
