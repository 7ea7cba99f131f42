// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
)

// Kubelet ends the sidecars of a pod that has done its work: how they end says nothing of the release.
func TestSidecarOfADonePodMayEndInAnyWay(t *testing.T) {
	t.Parallel()
	image := digest.FromString("image")
	sidecar := plan.Expectation{Container: "proxy", Init: true, Config: image}
	ended := func(name string, code int32) node.Container {
		return node.Container{Name: name, Image: image, StartedAt: time.Unix(1, 0), ExitCode: code}
	}
	const failed = "init container proxy failed (exit code 137)"
	for title, c := range map[string]struct {
		once bool
		job  []node.Container
		want string
	}{
		"the work is done": {true, []node.Container{ended("job", 0)}, ""},
		"it failed":        {true, []node.Container{ended("job", 1)}, failed},
		"it has no job":    {true, nil, failed},
		"a server":         {false, []node.Container{ended("job", 0)}, failed},
	} {
		p := plan.Apply{Once: c.once, Expect: []plan.Expectation{sidecar, {Container: "job", Config: image}}}
		proxy := ended("proxy", 137)
		assert.Equal(t, c.want, mismatch(&proxy, sidecar, p, append(c.job, proxy)), title)
	}
}
