// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

const (
	program           = "image-update-agent"
	unitFile          = program + ".service"
	renderFile        = program + "-render.service"
	socketFile        = program + ".socket"
	localRegistryFile = program + "-local-registry.socket"
	answerFile        = program + "-local-registry.service"
	againFile         = program + "-local-registry-again.timer"
)

// options returns a unit's settings by "Section.Key", in order.
func options(t *testing.T, name string) map[string][]string {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	found, err := unit.DeserializeOptions(file)
	require.NoError(t, err)
	by := map[string][]string{}
	for _, o := range found {
		key := o.Section + "." + o.Name
		by[key] = append(by[key], o.Value)
	}
	return by
}

// The package installs systemd/platform/NAME.conf for every platform at once, so each may only make that platform's own
// directories writable, and must be valid on a node without them.
func TestDropInsOfPlatformsOnlyAddDirectories(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range platform.All() {
		names = append(names, "platform/"+p.Name+".conf")
	}
	found, err := filepath.Glob("platform/*")
	require.NoError(t, err)
	for _, name := range found {
		assert.Contains(t, names, name)
		for key, values := range options(t, name) {
			assert.Equal(t, "Service.ReadWritePaths", key, name)
			for path := range strings.FieldsSeq(strings.Join(values, " ")) {
				assert.Regexp(t, `^-/[a-z0-9/-]+$`, path, name)
			}
		}
	}
}

// The directories that a platform writes are in the units' sandbox, or in its drop-in.
func TestUnitsMayWriteThePodManifestsOfEveryPlatform(t *testing.T) {
	t.Parallel()
	for _, p := range platform.All() {
		for _, name := range []string{unitFile, renderFile} {
			paths := options(t, name)["Service.ReadWritePaths"]
			if _, err := os.Stat("platform/" + p.Name + ".conf"); err == nil {
				paths = append(paths, options(t, "platform/"+p.Name+".conf")["Service.ReadWritePaths"]...)
			}
			isIn := func(dir string) bool { return strings.HasPrefix(p.PodManifests+"/", strings.TrimPrefix(dir, "-")+"/") }
			assert.True(t, slices.ContainsFunc(strings.Fields(strings.Join(paths, " ")), isIn), "%s: %s", name, p.Name)
		}
	}
}

// oldest is systemd's version on the oldest supported system (SLE Micro 5).
const oldest = 249

// since is the systemd version that introduced each key of the units, from systemd's NEWS; systemd ignores a misspelt
// key, so this test must fail for one.
var since = map[string]int{
	"Unit.Description": 1, "Unit.Documentation": 1, "Unit.After": 1, "Unit.Before": 1, "Unit.Wants": 1,
	"Unit.StartLimitIntervalSec": 230, "Unit.StopWhenUnneeded": 1,
	"Unit.OnFailure": 1, "Unit.PartOf": 1, "Unit.Conflicts": 1,
	"Service.StandardInput": 1, "Service.StandardOutput": 1, "Service.StandardError": 1, "Service.RuntimeMaxSec": 229,
	"Service.TimeoutStopSec": 188, "Service.LimitNOFILE": 1, "Service.TasksMax": 227, "Service.DynamicUser": 235, "Service.User": 1,
	"Service.Type": 1, "Service.NotifyAccess": 1, "Service.Sockets": 1, "Service.EnvironmentFile": 1,
	"Service.ImportCredential": 254, "Service.ExecStart": 1, "Service.ExecReload": 1,
	"Service.ExecStopPost": 1, "Service.Restart": 1, "Service.RestartSec": 1, "Service.RestartSteps": 254, "Service.RestartMaxDelaySec": 254,
	"Service.TimeoutStartSec": 188, "Service.WatchdogSec": 183,
	"Service.StateDirectory": 235, "Service.StateDirectoryMode": 235, "Service.RuntimeDirectory": 211,
	"Service.RuntimeDirectoryMode": 211, "Service.RuntimeDirectoryPreserve": 235, "Service.UMask": 1,
	"Service.ProtectSystem": 214, "Service.ReadWritePaths": 231, "Service.ProtectHome": 214, "Service.BindReadOnlyPaths": 233,
	"Service.PrivateTmp": 1, "Service.PrivateDevices": 209, "Service.PrivateMounts": 239, "Service.PrivateNetwork": 1,
	"Service.PrivateIPC": 248, "Service.PrivateUsers": 232, "Service.ProtectProc": 247, "Service.ProcSubset": 247,
	"Service.ProtectClock": 245, "Service.ProtectControlGroups": 232, "Service.ProtectHostname": 242,
	"Service.ProtectKernelLogs": 244, "Service.ProtectKernelModules": 232, "Service.ProtectKernelTunables": 232,
	"Service.LockPersonality": 235, "Service.MemoryDenyWriteExecute": 231, "Service.MemoryMax": 231, "Service.NoNewPrivileges": 187,
	"Service.RestrictAddressFamilies": 211, "Service.IPAddressDeny": 235, "Service.RestrictNamespaces": 233,
	"Service.RestrictRealtime": 231, "Service.RestrictSUIDSGID": 242, "Service.SystemCallArchitectures": 209,
	"Service.SystemCallFilter": 187, "Service.SystemCallErrorNumber": 209, "Service.CapabilityBoundingSet": 1,
	"Socket.ListenStream": 1, "Socket.SocketMode": 1, "Socket.DirectoryMode": 1, "Socket.RemoveOnStop": 214,
	"Socket.Accept": 1, "Socket.Backlog": 1, "Socket.TriggerLimitIntervalSec": 230,
	"Timer.OnActiveSec": 1, "Timer.AccuracySec": 209, "Timer.Unit": 1,
	"Install.WantedBy": 1, "Install.Also": 1,
}

// twice are keys that may occur twice: the second value is added to the first, or replaces it if it is known.
var twice = []string{"Service.Type", "Service.SystemCallFilter"}

// waived keys are ignored by an older systemd: the units explain the effect.
var waived = []string{"Service.ImportCredential", "Service.RestartSteps", "Service.RestartMaxDelaySec"}

func TestEveryKeyOfTheUnitIsKnownAndHasAValue(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, name := range []string{unitFile, renderFile, socketFile, localRegistryFile, answerFile, againFile} {
		for key, values := range options(t, name) {
			used[key] = true
			assert.Contains(t, since, key, name)
			assert.Equal(t, since[key] > oldest, slices.Contains(waived, key), key)
			for _, value := range values {
				assert.Equal(t, key != "Service.CapabilityBoundingSet", value != "", "%s: %s: nothing but the capabilities is empty", name, key)
			}
			if !slices.Contains(twice, key) {
				assert.Len(t, values, 1, "%s: %s", name, key)
			}
		}
	}
	for key := range since {
		assert.True(t, used[key], key)
	}
}

func duration(t *testing.T, values []string) time.Duration {
	t.Helper()
	require.Len(t, values, 1)
	d, err := time.ParseDuration(strings.Replace(values[0], "min", "m", 1))
	require.NoError(t, err)
	return d
}

// The unit before kubelet waits for no network, has none, is limited in time, and is required by no unit.
func TestRenderingNeverFailsABoot(t *testing.T) {
	t.Parallel()
	o := options(t, renderFile)
	assert.Equal(t, []string{renderFile + " " + HookPath}, options(t, unitFile)["Install.Also"], "who enables the one enables the others")
	before := []string{unitFile}
	for _, p := range platform.All() {
		before = append(before, p.Units...)
	}
	slices.Sort(before)
	assert.ElementsMatch(t, slices.Compact(before), strings.Fields(strings.Join(o["Unit.Before"], " ")), "kubelet of every platform")
	assert.NotContains(t, strings.Join(o["Unit.After"], " "), "network")
	assert.Equal(t, []string{"oneshot"}, o["Service.Type"])
	assert.Equal(t, []string{"-/usr/bin/" + program + " render"}, o["Service.ExecStart"])
	assert.LessOrEqual(t, duration(t, o["Service.TimeoutStartSec"]), 30*time.Second, "a oneshot has no limit by default")
	assert.Equal(t, []string{"yes"}, o["Service.PrivateNetwork"])
	for key := range o {
		if strings.HasPrefix(key, "Install.") {
			assert.Equal(t, "Install.WantedBy", key)
		}
	}
}
