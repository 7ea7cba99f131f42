// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// Process 1 holds the port in hosts.toml files before kubelet asks, and keeps it for any number of requests.
func TestSocketOfTheLocalRegistry(t *testing.T) {
	t.Parallel()
	o := options(t, localRegistryFile)
	assert.Equal(t, []string{localregistry.Address}, o["Socket.ListenStream"])
	assert.Equal(t, []string{"no"}, o["Socket.Accept"], "one process counts the clients, and cuts the slowest")
	assert.Equal(t, []string{"0"}, o["Socket.TriggerLimitIntervalSec"])
	assert.Equal(t, []string{"4096"}, o["Socket.Backlog"], "who comes while all places are taken, or no process runs, waits")
	assert.NotContains(t, o, "Socket.FlushPending", "who comes when a process ends waits for the next")
	assert.Equal(t, []string{"sockets.target"}, o["Install.WantedBy"])
	assert.Contains(t, strings.Fields(o["Unit.Before"][0]), "kubelet.service")
	assert.NotContains(t, strings.Join(options(t, unitFile)["Install.Also"], " "), localRegistryFile, "who enables the daemon does not enable it")
}

// The process that answers has access only to its connection, the table and the journal of its answers, and ends at a
// fixed time.
func TestServiceOfTheLocalRegistry(t *testing.T) {
	t.Parallel()
	o := options(t, answerFile)
	assert.Equal(t, []string{"/usr/libexec/" + program + "-local-registry /var/lib/" + program + "/" + table.File}, o["Service.ExecStart"])
	assert.Equal(t, []string{"socket"}, o["Service.StandardInput"])
	assert.Equal(t, []string{"null"}, o["Service.StandardOutput"], "by default it is the connection")
	assert.Equal(t, []string{"5"}, o["Service.RuntimeMaxSec"])
	assert.Equal(t, []string{"1"}, o["Service.TimeoutStopSec"], "else a program that hangs has 90 s more")
	assert.Equal(t, []string{"0"}, o["Unit.StartLimitIntervalSec"], "it starts once a second where somebody asks as often")
	for _, file := range []string{localRegistryFile, againFile} {
		assert.Equal(t, []string{"0"}, options(t, file)["Unit.StartLimitIntervalSec"], "%s starts after each failure", file)
	}
	assert.Equal(t, []string{againFile}, o["Unit.OnFailure"])
	assert.Equal(t, []string{localRegistryFile}, o["Unit.PartOf"])
	assert.NotContains(t, o, "Service.Restart", "the socket starts it")
	assert.Equal(t, []string{"/run/" + o["Service.RuntimeDirectory"][0]}, []string{registryhost.AnswersDir})
	for key, want := range map[string]string{
		"Service.DynamicUser": "yes", "Service.PrivateNetwork": "yes", "Service.RestrictAddressFamilies": "none",
		"Service.CapabilityBoundingSet": "", "Service.ProtectSystem": "strict", "Service.RuntimeDirectoryPreserve": "yes",
	} {
		assert.Equal(t, []string{want}, o[key], key)
	}
	assert.LessOrEqual(t, len(o["Service.User"][0]), 31, "a user's name is no longer")
	assert.Empty(t, o["Install.WantedBy"], "the socket starts it")
}

// After a failure the port is closed, so that no client waits, and soon open again.
func TestPortReopensAfterAFailure(t *testing.T) {
	t.Parallel()
	o := options(t, againFile)
	assert.Equal(t, []string{localRegistryFile}, o["Unit.Conflicts"])
	assert.Equal(t, []string{localRegistryFile}, o["Timer.Unit"])
	assert.Equal(t, []string{"1s"}, o["Timer.OnActiveSec"])
	assert.Empty(t, o["Install.WantedBy"], "a failure starts it")
}
