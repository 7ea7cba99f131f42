// SPDX-License-Identifier: Apache-2.0

package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// shell runs a script in a directory; no configuration of git's counts.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "IUA_TREE=", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, script)
	return string(out)
}

// The newest version that CHANGELOG.md describes is that of the programs and of the packages.
func TestVersion(t *testing.T) {
	t.Parallel()
	const commit = "git add -A && git commit -q --allow-empty -m a; "
	for name, c := range map[string]struct{ script, want string }{
		"no git":                       {"", `^0\.1\.0\n$`},
		"no tag yet":                   {"git init -q; " + commit, `^0\.1\.0\n$`},
		"the release":                  {"git init -q; " + commit + "git tag v0.1.0; ", `^0\.1\.0\n$`},
		"after it":                     {"git init -q; " + commit + "git tag v0.1.0; " + commit + commit, `^0\.1\.0\+git2\.[0-9a-f]{7}\n$`},
		"the next one, not tagged yet": {"sed -i 's/^## 0.1.0/## 0.2.0 (2027-01-01)\\n\\n&/' CHANGELOG.md; ", `^0\.2\.0\n$`},
		"what comes next is described": {"sed -i 's/^## 0.1.0/## Unreleased\\n\\n&/' CHANGELOG.md; ", `^0\.1\.0\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "tools"), 0o755))
			agenttest.WriteProgram(t, filepath.Join(dir, "tools/package"), text(t, "../tools/package"))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte("# Changes\n\n## 0.1.0 (2026-11-26)\n"), 0o644))
			assert.Regexp(t, c.want, shell(t, dir, c.script+"tools/package version"))
		})
	}
	version := shell(t, "..", "IUA_TREE=1 tools/package version")
	assert.Regexp(t, `^\d+\.\d+\.\d+\n$`, version)
	assert.Contains(t, shell(t, "..", "unset VERSION; IUA_TREE=1 make -n build"), "-X main.version="+version[:len(version)-1]+"'")
}
