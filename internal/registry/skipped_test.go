// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// An answer says which host failed before it, and that containerd ignores a hosts.toml which it cannot parse. A mirror
// without the image has not failed.
func TestAnswerSaysWhatFailedBefore(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusNotFound: false} {
		mirror, upstream := newFake(t), newFake(t)
		upstream.tag("1", upstream.image(t, "linux", "amd64", nil))
		mirror.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		r, _ := newRegistry(t, certsD(t, upstream.host(), plainHTTP(upstream.host())+fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())))
		by, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
		require.NoError(t, err)
		assert.Equal(t, upstream.host(), by.Host)
		assert.Equal(t, want, by.Skipped != nil, status)
		if want {
			assert.Equal(t, mirror.host(), by.Skipped.Host)
		}
		assert.Empty(t, by.HostsIgnored)
	}
	upstream := newFake(t)
	upstream.tag("1", upstream.image(t, "linux", "amd64", nil))
	r, _ := newRegistry(t, certsD(t, upstream.host(), "server = \n"))
	by, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
	require.NoError(t, err)
	assert.Contains(t, by.HostsIgnored, "hosts.toml is ignored: ")
	assert.Nil(t, by.Skipped)
}
