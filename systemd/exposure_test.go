// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// analyze runs the machine's systemd-analyze(1), which does not need a running systemd. `tools/setup packages` installs
// it.
func analyze(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "systemd-analyze", args...)
	var out, said strings.Builder
	command.Stdout, command.Stderr = &out, &said
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "SYSTEMD_PAGER=")
	err = command.Run()
	require.NotErrorIs(t, err, exec.ErrNotFound, "tools/setup packages")
	return out.String(), said.String(), err
}

// Each unit's exposure, times ten, is at most this, and each part of it is explained by a comment in the unit. Other
// update agents have 4.5 to 9.6.
func TestExposure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit     string
		explained []string
	}{
		unitFile: {"14", []string{
			"RootDirectoryOrRootImage", "UserOrDynamicUser", "RestrictAddressFamilies_AF_UNIX", "RestrictAddressFamilies_AF_INET_INET6",
			"PrivateNetwork", "ProtectHome", "DeviceAllow", "IPAddressDeny",
		}},
		renderFile: {"5", []string{
			"RootDirectoryOrRootImage", "UserOrDynamicUser", "RestrictAddressFamilies_AF_UNIX", "DeviceAllow",
		}},
		answerFile: {"7", []string{"RootDirectoryOrRootImage", "DeviceAllow"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, said, err := analyze(t, "security", "--offline=true", "--threshold="+c.limit, "--no-pager", name)
			require.NoError(t, err, "%s%s", out, said)
			assert.Regexp(t, `Overall exposure level for `+regexp.QuoteMeta(name)+`: [01]\.\d `, out)

			out, said, err = analyze(t, "security", "--offline=true", "--json=short", name)
			require.NoError(t, err, said)
			var checks []struct {
				Field    string  `json:"json_field"`
				Exposure *string `json:"exposure"`
			}
			require.NoError(t, json.Unmarshal([]byte(out), &checks), out)
			assert.Greater(t, len(checks), 60, "it has looked")
			var left []string
			for _, check := range checks {
				if check.Exposure != nil {
					left = append(left, check.Field)
				}
			}
			assert.ElementsMatch(t, c.explained, left)
		})
	}
}

// known matches messages of a systemd that is older than a key.
var known = regexp.MustCompile(`^\S+:\d+: (Unknown key(?: name)? '(\w+)' in section '?\[?(\w+)\]?'?, ignoring\.|Failed to parse service type, ignoring: notify-reload)$`)

func TestVerify(t *testing.T) {
	t.Parallel()
	// The unit's program must exist, and no other unit of the machine may matter.
	dir := t.TempDir()
	for _, name := range []string{program, program + "-local-registry"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o700))
	}
	var units []string
	for _, name := range []string{unitFile, renderFile, socketFile, localRegistryFile, answerFile, againFile} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		units = append(units, filepath.Join(dir, name))
		placed := strings.NewReplacer("/usr/bin/", dir+"/", "/usr/libexec/", dir+"/").Replace(string(text))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(placed), 0o600))
	}
	for _, name := range []string{unitFile, renderFile} { // units with drop-ins for platforms in the package
		require.NoError(t, os.CopyFS(filepath.Join(dir, name+".d"), os.DirFS("platform")))
	}
	_, said, err := analyze(t, append([]string{"verify", "--man=no"}, units...)...)
	require.NoError(t, err, said)
	for line := range strings.Lines(said) {
		line = strings.TrimSuffix(line, "\n")
		match := known.FindStringSubmatch(line)
		if assert.NotNil(t, match, line) && match[2] != "" {
			assert.Contains(t, waived, match[3]+"."+match[2])
		}
	}
}
