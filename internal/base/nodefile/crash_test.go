// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// crashDir makes the test binary a child that rewrites a file in this directory until it is killed.
const crashDir = "NODEFILE_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, rewriteForever(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(sandboxDir); dir != "" {
		fmt.Println(replaceOnce(dir))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// version returns the n-th content of the file: lengths differ, and the last line repeats the first.
func version(n int) []byte {
	return fmt.Appendf(nil, "%d\n%s%d\n", n, strings.Repeat("x", n*7919%20000)+"\n", n)
}

func versionOf(data []byte) (n int, whole bool) {
	first, _, _ := bytes.Cut(data, []byte("\n"))
	n, err := strconv.Atoi(string(first))
	return n, err == nil && bytes.Equal(data, version(n))
}

// rewriteForever prints each version once it is written.
func rewriteForever(dir string) error {
	d, err := OpenDir(dir)
	if err != nil {
		return err
	}
	was, err := d.Read("file", 1<<20)
	if err != nil {
		return err
	}
	n, _ := versionOf(was.Data)
	for {
		n++
		if _, err := d.Write("file", version(n), Options{Expect: &was}); err != nil {
			return err
		}
		if _, err := fmt.Println(n); err != nil {
			return err
		}
		if was, err = d.Read("file", 1<<20); err != nil {
			return err
		}
	}
}

func TestKilledWriterLeavesACompleteVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	_, err := d.Write("file", version(0), Options{})
	require.NoError(t, err)
	leftOvers := 0
	for range 40 {
		said := killAtRandom(t, dir)
		file, err := d.Read("file", 1<<20)
		require.NoError(t, err)
		n, whole := versionOf(file.Data)
		require.True(t, whole, "torn: %.40q", file.Data)
		require.GreaterOrEqual(t, n, said, "what was said to be written is there")
		leftOvers += len(names(t, dir)) - 1
		require.NoError(t, d.Sweep())
		require.Equal(t, []string{"file"}, names(t, dir))
	}
	t.Logf("%d of 40 kills left a temporary file", leftOvers)
}

// killAtRandom starts a child, kills it after some writes at a random point, and returns the last version that it
// reported.
func killAtRandom(t *testing.T, dir string) (said int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(output)
	for range 1 + rand.IntN(20) {
		require.True(t, lines.Scan(), "the child writes until it is killed")
		said, err = strconv.Atoi(lines.Text())
		require.NoError(t, err)
	}
	require.NoError(t, child.Process.Kill())
	for lines.Scan() {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			said = max(said, n)
		}
	}
	require.ErrorContains(t, child.Wait(), "killed")
	return said
}
