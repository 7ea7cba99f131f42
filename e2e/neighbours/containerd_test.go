// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"net/http"
	"strings"
	"testing"
)

// containerds are the compared versions: the part of tools/setup with the version's code, and a version number for the
// agent.
var containerds = map[string]string{
	"containerd16-reads": "1.6.36",
	"containerd17-reads": "1.7.35",
	"containerd-reads":   "v2.4.2",
}

// containerd answers with containerd's own code (tools/modules/containerd/reads, tools/modules/containerd1/reads).
type containerd struct{ *judge }

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

func startContainerd(t *testing.T, name, part string) containerd {
	t.Helper()
	return containerd{startJudge(t, name+"-"+strings.TrimSuffix(part, "-reads"), part, "reads")}
}

func (c containerd) ask(request containerdAsked, in input) (says containerdSays) {
	c.t.Helper()
	c.judge.ask(request, &says, in)
	return says
}

// settle removes the texts of errors, which name the first of several.
func (s *containerdSays) settle() {
	for _, text := range []*string{&s.Err, &s.Pulled.Missing} {
		if *text != "" {
			*text = "refused"
		}
	}
}
