// SPDX-License-Identifier: Apache-2.0

package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// unitStates are what systemd says of the service after a boot, look by look, the
// last one again and again; whether the settings are wrong; and whether the system
// is at fault.
var unitStates = map[string]struct {
	looks []string
	wrong bool
	fault string
}{
	"runs":                            {looks: []string{"enabled,active,running,success,0"}},
	"starts":                          {looks: []string{"enabled,activating,start,success,0"}},
	"waits for the network":           {looks: []string{"enabled,inactive,dead,success,0"}},
	"reloads":                         {looks: []string{"enabled,reloading,reload-signal,success,0"}},
	"is not enabled":                  {looks: []string{"disabled,failed,failed,signal,11"}},
	"is masked":                       {looks: []string{"masked,failed,failed,signal,11"}},
	"is not installed":                {looks: []string{",inactive,dead,success,0"}},
	"was ended by a person":           {looks: []string{"enabled,activating,auto-restart,signal,9"}},
	"was ended, memory was full":      {looks: []string{"enabled,activating,auto-restart,oom-kill,9"}},
	"was ended by the watchdog":       {looks: []string{"enabled,activating,auto-restart,watchdog,6"}},
	"did not become ready in time":    {looks: []string{"enabled,activating,auto-restart,timeout,15"}},
	"says why it ends":                {looks: []string{"enabled,activating,auto-restart,exit-code,1"}},
	"has wrong settings":              {looks: []string{"enabled,activating,auto-restart,exit-code,2"}, wrong: true},
	"comes up at the second try":      {looks: []string{"enabled,activating,auto-restart,signal,11", "enabled,active,running,success,0"}},
	"comes up at the third try":       {looks: []string{"enabled,activating,auto-restart,signal,11", "enabled,activating,auto-restart-queued,signal,11", "enabled,active,running,success,0"}},
	"systemd cannot be asked":         {},
	"panics":                          {looks: []string{"enabled,activating,auto-restart,exit-code,2"}, fault: "a panic"},
	"panics, and is linked":           {looks: []string{"linked,failed,failed,exit-code,2"}, fault: "a panic"},
	"crashes":                         {looks: []string{"enabled,activating,auto-restart,core-dump,11"}, fault: "signal 11"},
	"is killed by its filter":         {looks: []string{"enabled,activating,auto-restart,signal,31"}, fault: "signal 31"},
	"is an instruction unknown":       {looks: []string{"enabled-runtime,failed,failed,signal,4"}, fault: "signal 4"},
	"is not there":                    {looks: []string{"enabled,activating,auto-restart,exit-code,203"}, fault: "status 203"},
	"cannot have its namespace":       {looks: []string{"enabled,activating,auto-restart,exit-code,226"}, fault: "status 226"},
	"ends with what is no code of it": {looks: []string{"enabled,activating,auto-restart,exit-code,99"}},
	// StateDirectory=, RuntimeDirectory=, a login that cannot be decrypted, no user namespaces by sysctl.d.
	"has a full /var":                    {looks: []string{"enabled,activating,auto-restart,exit-code,238"}},
	"has a full /run":                    {looks: []string{"enabled,activating,auto-restart,exit-code,233"}},
	"has a bad credential":               {looks: []string{"enabled,activating,auto-restart,exit-code,243"}},
	"has no user namespace":              {looks: []string{"enabled,activating,auto-restart,exit-code,217"}},
	"has no journal to write to":         {looks: []string{"enabled,activating,auto-restart,exit-code,209"}},
	"has a drop-in with a wrong program": {looks: []string{"enabled,activating,auto-restart,exit-code,203,/etc/systemd/system/image-update-agent.service.d/x.conf"}},
	"has a drop-in with a wrong path":    {looks: []string{"enabled,activating,auto-restart,exit-code,226,/usr/lib/systemd/system/service.d/10.conf /etc/systemd/system/image-update-agent.service.d/x.conf"}},
	"has a drop-in for this boot":        {looks: []string{"enabled,activating,auto-restart,signal,31,/run/systemd/system/image-update-agent.service.d/x.conf"}},
	"has a drop-in with a wrong flag":    {looks: []string{"enabled,activating,auto-restart,exit-code,2,/etc/systemd/system.control/image-update-agent.service.d/x.conf"}},
	"has a unit of the admin's":          {looks: []string{"enabled,activating,auto-restart,exit-code,203,,/etc/systemd/system/image-update-agent.service"}},
	"crashes, and has a drop-in":         {looks: []string{"enabled,activating,auto-restart,signal,11,/etc/systemd/system/image-update-agent.service.d/x.conf"}, fault: "signal 11"},
	"has a drop-in of the distribution":  {looks: []string{"enabled,activating,auto-restart,exit-code,203,/usr/lib/systemd/system/service.d/10.conf"}, fault: "status 203"},
}

// plugin runs the plugin as health-checker does, on a system whose systemctl, sleep
// and agent are stand-ins.
func plugin(t *testing.T, looks []string, wrong bool, args ...string) (said string, code int, log string) {
	t.Helper()
	return pluginWith(t, "", looks, wrong, args...)
}

// pluginWith does so where an admin has set variables of the service's environment.
func pluginWith(t *testing.T, sysconfig string, looks []string, wrong bool, args ...string) (said string, code int, log string) {
	t.Helper()
	dir := t.TempDir()
	stand := func(name, script string) {
		agenttest.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\ncd "+dir+"\n"+script+"\n")
	}
	stand("sleep", `echo "sleep $1" >>log; [ $(wc -l <looks) = 1 ] || sed -i 1d looks`)
	stand("agent", map[bool]string{true: "exit 2", false: `[ "$1 $2" = "config check" ] && [ "$UPDATE_POLLING_INTERVAL" != garbage ] || exit 2`}[wrong])
	stand("systemctl", `echo "systemctl $*" >>log
		[ "$1" = show ] || exit 0
		[ -s looks ] || { echo "Failed to connect to bus" >&2; exit 1; }
		[ "$3" = image-update-agent.service ] || exit 1
		name=${2#--property=}
		case $name in UnitFileState) n=1 ;; ActiveState) n=2 ;; SubState) n=3 ;; Result) n=4 ;; ExecMainStatus) n=5 ;;
			DropInPaths) n=6 ;; FragmentPath) n=7 ;; *) exit 1 ;; esac
		echo "$name=$(head -n1 looks | cut -d, -f$n)"`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "looks"), []byte(strings.Join(append(looks, ""), "\n")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o600))
	script := strings.Replace(text(t, "health-checker/image-update-agent.sh"), "program=/usr/bin/image-update-agent\n", "program="+dir+"/agent\n", 1)
	script = strings.Replace(script, "environment=/etc/sysconfig/image-update-agent\n", "environment="+dir+"/sysconfig\n", 1)
	require.Contains(t, script, dir+"/agent")
	if sysconfig != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "sysconfig"), []byte(sysconfig), 0o600))
	}
	file := filepath.Join(dir, "plugin.sh")
	agenttest.WriteProgram(t, file, script)
	command := exec.CommandContext(t.Context(), file, args...)
	command.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(out), command.ProcessState.ExitCode(), text(t, filepath.Join(dir, "log"))
}

// A plugin that fails has the system rolled back.
func TestHealthCheckerFailsForABrokenProgramOnly(t *testing.T) {
	t.Parallel()
	for name, c := range unitStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, code, log := plugin(t, c.looks, c.wrong, "check")
			assert.True(t, strings.HasPrefix(said, "image-update-agent: "), said)
			assert.NotContains(t, log, "stop")
			if c.fault == "" {
				assert.Equal(t, 0, code, said)
				return
			}
			assert.Equal(t, 1, code, said)
			assert.Contains(t, said, c.fault)
			assert.Equal(t, 2, strings.Count(log, "sleep 6\n"), "it has looked three times")
		})
	}
}

// The service has settings of its environment, too, and it ends by a mistake in one with 2.
func TestHealthCheckerKnowsTheEnvironment(t *testing.T) {
	t.Parallel()
	panics := []string{"enabled,activating,auto-restart,exit-code,2"}
	for _, wrong := range []string{"# x\nUPDATE_POLLING_INTERVAL=garbage\n", "UPDATE_POLLING_INTERVAL='garbage\n"} {
		said, code, _ := pluginWith(t, wrong, panics, false, "check")
		assert.Equal(t, 0, code, "%s: %s", wrong, said)
		assert.Contains(t, said, "settings are wrong")
	}
	said, code, _ := pluginWith(t, "UPDATE_POLLING_INTERVAL=12h\n", panics, false, "check")
	assert.Equal(t, 1, code, said)
}

// Each result and status that systemd may give: with the looks above, no other fails.
func TestHealthCheckerKnowsNoOtherFault(t *testing.T) {
	t.Parallel()
	for _, result := range []string{"success", "protocol", "timeout", "watchdog", "start-limit-hit", "resources", "oom-kill", "exec-condition"} {
		for _, status := range []string{"2", "11", "203"} {
			said, code, _ := plugin(t, []string{"enabled,failed,failed," + result + "," + status}, false, "check")
			assert.Equal(t, 0, code, "%s/%s: %s", result, status, said)
		}
	}
}

func TestHealthCheckerStops(t *testing.T) {
	t.Parallel()
	_, code, log := plugin(t, nil, false, "stop")
	assert.Equal(t, 0, code)
	assert.Equal(t, "systemctl stop image-update-agent.service\n", log)
	said, code, log := plugin(t, nil, false)
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "usage: ")
	assert.Empty(t, log)
}
