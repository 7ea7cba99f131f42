// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unitFile = "image-update-agent.service"

// options are the unit's settings by "Section.Key", in order.
func options(t *testing.T) map[string][]string {
	t.Helper()
	file, err := os.Open(unitFile)
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

// since is the systemd version in which each key of the unit came, from
// systemd's NEWS; a misspelt key is ignored by systemd, so it must fail here.
var since = map[string]int{
	"Unit.Description": 1, "Unit.Documentation": 1, "Unit.After": 1, "Unit.Wants": 1, "Unit.StartLimitIntervalSec": 230,
	"Service.Type": 1, "Service.NotifyAccess": 1, "Service.EnvironmentFile": 1, "Service.ImportCredential": 254, "Service.ExecStart": 1, "Service.ExecReload": 1,
	"Service.ExecStopPost": 1, "Service.Restart": 1, "Service.RestartSec": 1, "Service.RestartSteps": 254, "Service.RestartMaxDelaySec": 254,
	"Service.TimeoutStartSec": 188, "Service.WatchdogSec": 183,
	"Service.StateDirectory": 235, "Service.StateDirectoryMode": 235, "Service.RuntimeDirectory": 211,
	"Service.RuntimeDirectoryMode": 211, "Service.RuntimeDirectoryPreserve": 235, "Service.UMask": 1,
	"Service.ProtectSystem": 214, "Service.ReadWritePaths": 231, "Service.ProtectHome": 214, "Service.PrivateTmp": 1,
	"Service.PrivateDevices": 209, "Service.ProtectClock": 245, "Service.ProtectControlGroups": 232, "Service.ProtectHostname": 242,
	"Service.ProtectKernelLogs": 244, "Service.ProtectKernelModules": 232, "Service.ProtectKernelTunables": 232,
	"Service.LockPersonality": 235, "Service.MemoryDenyWriteExecute": 231, "Service.NoNewPrivileges": 187,
	"Service.RestrictAddressFamilies": 211, "Service.RestrictNamespaces": 233, "Service.RestrictRealtime": 231,
	"Service.RestrictSUIDSGID": 242, "Service.SystemCallArchitectures": 209, "Service.CapabilityBoundingSet": 1,
	"Install.WantedBy": 1,
}

func TestEveryKeyOfTheUnitIsKnownAndHasAValue(t *testing.T) {
	t.Parallel()
	for key, values := range options(t) {
		assert.Contains(t, since, key)
		for _, value := range values {
			assert.NotEmpty(t, value, key)
		}
		if section, name, _ := strings.Cut(key, "."); section == "Service" && !strings.HasPrefix(name, "EnvironmentFile") {
			assert.Len(t, values, 1, key)
		}
	}
}

func TestTheUnitFitsTheNotifier(t *testing.T) {
	t.Parallel()
	o := options(t)
	assert.Equal(t, []string{"notify"}, o["Service.Type"])
	assert.Equal(t, []string{"main"}, o["Service.NotifyAccess"], "the notifier sends from the main process")
	assert.Equal(t, []string{"/bin/kill -HUP $MAINPID"}, o["Service.ExecReload"])
	limit, err := time.ParseDuration(strings.Replace(o["Service.WatchdogSec"][0], "min", "m", 1))
	require.NoError(t, err)
	// The longest step without a report is one metadata request, 60 s.
	assert.GreaterOrEqual(t, limit, 2*time.Minute)
	assert.LessOrEqual(t, limit, 10*time.Minute, "a hanging daemon is to be found out the same day")
}

func TestTheUnitNeverDelaysTheNode(t *testing.T) {
	t.Parallel()
	o := options(t)
	assert.Empty(t, o["Unit.Before"], "a registry that is away must not delay kubelet")
	for _, key := range []string{"Unit.Requires", "Unit.BindsTo", "Unit.PartOf", "Unit.Requisite"} {
		assert.Empty(t, o[key])
	}
	after := strings.Fields(strings.Join(o["Unit.After"], " "))
	assert.Contains(t, after, "containerd.service")
	assert.Contains(t, after, "network-online.target")
	assert.Equal(t, []string{"network-online.target"}, o["Unit.Wants"])
}

func TestTheUnitStartsAgainForEver(t *testing.T) {
	t.Parallel()
	o := options(t)
	assert.Equal(t, []string{"on-failure"}, o["Service.Restart"])
	assert.Equal(t, []string{"0"}, o["Unit.StartLimitIntervalSec"])
	assert.NotEmpty(t, o["Service.RestartSec"])
	assert.Empty(t, o["Service.RestartPreventExitStatus"], "a Go panic exits with 2, as a bad configuration does")
}

// TestTheUnitsPathsAreTheConfigurations: what the daemon writes by default is
// what the unit makes and leaves writable.
func TestTheUnitsPathsAreTheConfigurations(t *testing.T) {
	t.Parallel()
	shipped, err := os.ReadFile("../packaging/config.yaml")
	require.NoError(t, err)
	lines := strings.Split(string(shipped), "\n")
	o := options(t)
	assert.Contains(t, lines, "#stateDir: /var/lib/"+o["Service.StateDirectory"][0])
	assert.Contains(t, lines, "#runtimeDir: /run/"+o["Service.RuntimeDirectory"][0])
	assert.Contains(t, lines, "#podManifests: /etc/kubernetes/manifests")
	assert.Contains(t, lines, "#  path: /etc/salt/grains")
	assert.Equal(t, []string{"strict"}, o["Service.ProtectSystem"])
	assert.Equal(t, []string{"/etc"}, o["Service.ReadWritePaths"])
	name := strings.TrimSuffix(unitFile, ".service")
	assert.Equal(t, []string{"/usr/bin/" + name + " run"}, o["Service.ExecStart"])
	assert.Equal(t, []string{"/usr/bin/" + name + " put-back"}, o["Service.ExecStopPost"])
	assert.Equal(t, name, o["Service.StateDirectory"][0])
}
