// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// kubelet is a process with kubelet's own code (tools/modules/kubelet/reads).
type kubelet struct {
	requests *json.Encoder
	answers  *json.Decoder
}

// kubeletSays is its answer.
type kubeletSays struct {
	Pods []struct {
		Namespace, Name string
		Containers      []kubeletContainer
	}
	Logins [][]kubeletLogin
	Config kubeletConfig
}

type (
	kubeletContainer struct{ Name, Image, Policy string }
	kubeletLogin     struct{ User, Password string }
	kubeletConfig    struct {
		Refused, StaticPodPath, Address string
		ImageGCHigh, ReadOnlyPort       int
	}
)

func startKubelet(t *testing.T) kubelet {
	t.Helper()
	dir := story.Shell(t, story.Checkout(t), "tools/setup where kubelet-reads")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "reads"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return kubelet{json.NewEncoder(in), json.NewDecoder(out)}
}

func (k kubelet) ask(t *testing.T, request map[string]any) (says kubeletSays) {
	t.Helper()
	require.NoError(t, k.requests.Encode(request))
	require.NoError(t, k.answers.Decode(&says), "%v", request)
	return says
}
