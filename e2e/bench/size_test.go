// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// benchSmall is the environment variable that makes each benchmark as short as possible. Its figures are then
// meaningless.
const benchSmall = "BENCH_SMALL"

// sized returns the size of a benchmark: full for figures, small for a test that it runs.
func sized[T any](full, small T) T {
	if os.Getenv(benchSmall) != "" {
		return small
	}
	return full
}

// TestEveryBenchmarkRuns runs each benchmark of this package once, small, in its own process. A broken benchmark would
// otherwise be noticed only when figures are needed.
func TestEveryBenchmarkRuns(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	names := benchmarks(t)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^$", "-test.bench=^"+name+"$", "-test.benchtime=1x")
			cmd.Env = append(os.Environ(), benchSmall+"=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Regexp(t, `(?m)^`+name+`\S*\s+1\s`, string(out), "the benchmark gives a line of figures")
			assert.NotContains(t, string(out), "%!", "a format has all its values")
		})
	}
}

// benchmarks returns the names of the benchmarks that the files of this package declare.
func benchmarks(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range story.Glob(t, ".", "*_test.go") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func (Benchmark\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}
