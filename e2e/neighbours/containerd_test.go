// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// containerds are the compared versions: the part of tools/setup with the version's code, and a version number for the
// agent.
var containerds = map[string]string{
	"containerd16-reads": "1.6.36",
	"containerd17-reads": "1.7.35",
	"containerd-reads":   "v2.4.2",
}

// containerd is a process with containerd's own code (tools/modules/containerd/reads, tools/modules/containerd1/reads).
// It is safe for concurrent use.
type containerd struct {
	mu       *sync.Mutex
	requests *json.Encoder
	answers  *json.Decoder
}

// containerdAsked and containerdSays are the Request and Answer of tools/modules/reads.
type containerdAsked struct {
	Root      string   `json:"root,omitempty"`
	Logins    []string `json:"logins,omitempty"`
	CertsDirs []string `json:"certsDirs,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Pull      string   `json:"pull,omitempty"`
	Scheme    string   `json:"scheme,omitempty"`
	User      string   `json:"user,omitempty"`
	Password  string   `json:"password,omitempty"`
}

type containerdSays struct {
	Err    string
	Config struct {
		ConfigPath, Snapshotter, Sandbox string
		Mirrors, ClientPull              bool
		Unpacks                          int
		Logins                           map[string]containerdLogin
	}
	Hosts  []containerdHost
	Pulled struct{ Digest, Missing string }
}

type containerdLogin struct {
	User, Secret []byte
	Err          string
}

type containerdHost struct {
	Scheme, Host, Path                string
	Pull, Resolve                     bool
	Header                            http.Header
	SkipVerify, Authorities, Fallback bool
	Certificates                      int
}

func startContainerd(t *testing.T, part string) containerd {
	t.Helper()
	dir := story.Shell(t, story.Checkout(t), "tools/setup where "+part)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "reads"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return containerd{&sync.Mutex{}, json.NewEncoder(in), json.NewDecoder(out)}
}

func (c containerd) ask(t *testing.T, request containerdAsked) (says containerdSays) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(t, c.requests.Encode(request))
	require.NoError(t, c.answers.Decode(&says))
	return says
}
