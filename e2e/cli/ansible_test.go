// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// standIn prints the agent's output, and records its calls. Its exit codes come from the file, one per apply.
const standIn = `#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/asked"
if [ "$1" = status ]; then echo '{"state": "staged", "reason": "velum waits"}'; exit; fi
code=$(head -n 1 "$here/codes")
sed -i 1d "$here/codes"
[ "$code" != 4 ] || echo 'velum.yaml: held: lock: node-2 has it' >&2
exit "$code"
`

// The role acts on the exit codes of apply. A real Ansible runs it, with a stand-in for the agent.
func TestAnsibleRole(t *testing.T) {
	t.Parallel()
	const apply = "apply\n"
	for name, c := range map[string]struct {
		codes, arguments string
		asked, recap     string
	}{
		"applied":         {"0", "", apply, "changed=1 failed=0"},
		"nothing to do":   {"3", "", apply, "changed=0 failed=0"},
		"failed":          {"1", "", apply, "failed=1"},
		"bad usage":       {"2", "", apply, "failed=1"},
		"lock, then done": {"4 0", "", apply + apply, "changed=1 failed=0"},
		"lock, for good":  {"4 4 4", "", apply + apply + apply, "failed=1"},
		"held is fine":    {"4 4 4", "-e image_update_past_held=true", apply + apply + apply, "changed=0 failed=0"},
		"check":           {"", "--check", "", "changed=0 failed=0"},
		"expected": {
			"0", `-e {"image_update_expect":{"registry.suse.com/caasp/v4/velum":"sha256:00"}}`,
			"apply --expect=registry.suse.com/caasp/v4/velum=sha256:00\n", "changed=1 failed=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			agenttest.WriteProgram(t, filepath.Join(dir, "image-update-agent"), standIn)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "codes"), []byte(strings.ReplaceAll(c.codes, " ", "\n")+"\n"), 0o600))
			said := story.Shell(t, filepath.Join(story.Checkout(t), "packaging/ansible"), `
				export PATH="$1:$PATH" HOME="$1" ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_NOCOLOR=1 LC_ALL=C.UTF-8
				ansible-playbook -i localhost, -c local -e image_update_hosts=all -e ansible_become=false \
					-e ansible_python_interpreter=/usr/bin/python3 -e image_update_lock_tries=2 -e image_update_lock_delay=0 \
					image-updates.yml ${2:+$2} 2>&1 || echo "exit $?"`, dir, c.arguments)
			assert.Equal(t, "status --output json\n"+c.asked, story.Read(t, dir, "asked"), said)
			for want := range strings.FieldsSeq(c.recap) {
				assert.Contains(t, said, want, said)
			}
			assert.Contains(t, said, "staged: velum waits")
			assert.Equal(t, c.recap == "failed=1", strings.Contains(said, "exit "), fmt.Sprint(said))
		})
	}
}
