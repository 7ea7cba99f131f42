// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// People and scripts enable and disable the local registry at the same time. Each verb is carried out whole, and what is
// remembered is what the files say.
func TestEnableAndDisableAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	certs := filepath.Join(root, "etc/containerd/certs.d")
	require.NoError(t, os.MkdirAll(certs, 0o755))
	registries := registryhost.Registries{Dirs: []string{certs}}
	memory := registryhost.Memory{Dir: filepath.Join(root, "var/lib/image-update-agent"), Registries: registries}
	verb := func(args ...string) (int, string) {
		var out, said bytes.Buffer
		code := execute(t.Context(), append([]string{"local-registry", "--root", root}, args...),
			streams{in: strings.NewReader(""), out: &out, err: &said})
		return code, said.String()
	}
	var all sync.WaitGroup
	for n := range 12 {
		own, shared := fmt.Sprintf("r%d.example.com", n), fmt.Sprintf("shared%d.example.com", n%2)
		all.Go(func() {
			code, said := verb("enable", own, "--write")
			assert.Equal(t, exitDone, code, said)
		})
		all.Go(func() {
			args := []string{"enable", shared, "--write", "--gate"}
			if n%4 < 2 {
				args = []string{"disable", shared, "--write"}
			}
			code, said := verb(args...)
			assert.Contains(t, []int{exitDone, exitNothing}, code, said)
		})
	}
	all.Wait()
	wanted, err := memory.Wanted()
	require.NoError(t, err)
	remembered := map[string]string{}
	for _, w := range wanted {
		remembered[w.Registry] = string(w.Position)
	}
	enabled, err := registries.Enabled(t.Context())
	require.NoError(t, err)
	written := map[string]string{}
	for _, r := range enabled {
		written[r.Registry] = string(r.Position)
	}
	assert.Equal(t, written, remembered)
	assert.GreaterOrEqual(t, len(written), 12)
}
