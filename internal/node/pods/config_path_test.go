// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (f *fakeRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !r.GetVerbose() {
		return &cri.StatusResponse{}, nil
	}
	return &cri.StatusResponse{Info: map[string]string{"config": f.config}}, nil
}

func TestConfigPathOfTheRunningContainerd(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		path   string
		known  bool
		failed bool
	}{
		`{"registry": {"configPath": "/etc/containerd/certs.d", "mirrors": null}, "sandboxImage": "pause"}`: {path: "/etc/containerd/certs.d", known: true},
		`{"registry": {"configPath": ""}}`:     {known: true}, // without one
		`{"containerdRootDir": "/var/lib"}`:    {},            // 2.x
		`{"registry": {"mirrors": {}}}`:        {},            // before 1.5
		``:                                     {},
		`{"registry": {"configPath": ["/a"]}}`: {failed: true},
		`registry`:                             {failed: true},
	} {
		r, _ := serve(t, &fakeRuntime{config: text})
		path, known, err := r.ConfigPath(t.Context())
		require.Equal(t, want.failed, err != nil, text)
		assert.Equal(t, want.path, path, text)
		assert.Equal(t, want.known, known, text)
	}
}
