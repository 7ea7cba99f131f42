// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// hostDoctor returns doctor's diagnoses of a host by check. If a check has several, it is the first that is not good.
func hostDoctor(t *testing.T, h *host.Host) map[string]story.Diagnosis {
	t.Helper()
	r := h.Exec("image-update-agent", "doctor", "--output", "json")
	var all []story.Diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), "exit %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	found := map[string]story.Diagnosis{}
	for _, d := range all {
		if old, there := found[d.Check]; !there || old.Verdict == "ok" {
			found[d.Check] = d
		}
	}
	return found
}

// hostIsWell asserts that doctor finds no fault with the service as the package installs it.
func hostIsWell(t *testing.T, h *host.Host) {
	t.Helper()
	checks := hostDoctor(t, h)
	for _, check := range []string{
		"service", "watchdog", "status socket", "rendering at boot", "daemon", "version", "unit", "writable", "set aside",
		"grains", "containerd",
	} {
		require.Contains(t, checks, check)
		assert.Equal(t, "ok", checks[check].Verdict, "%+v", checks[check])
	}
	story.Diagnosed(t, checks["kubelet"], "warning", "flags of kubelet.service are not known: not-found") // it runs outside
	for check, d := range checks {
		if check != "cri" { // containerd's image directory is outside of this host
			assert.NotEqual(t, "failed", d.Verdict, "%s: %+v", check, d)
		}
	}
	h.DropIn(host.Service, "[Service]\nWatchdogSec=0\n")
	h.Must("systemctl", "restart", host.Service)
	checks = hostDoctor(t, h)
	story.Diagnosed(t, checks["watchdog"], "warning", "WatchdogSec=")
	story.Diagnosed(t, checks["service"], "ok", "drop-ins: /etc/systemd/system/"+host.Service)
}
