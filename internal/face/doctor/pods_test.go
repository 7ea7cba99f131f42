// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

const velum = "registry.suse.com/caasp/v4/velum"

// What holds a pod back has the remedy that the status has.
func TestWhatHoldsAPod(t *testing.T) {
	t.Parallel()
	pod := plan.PodPlan{File: "velum.yaml", Holds: []status.Hold{
		{Name: status.HoldUnmanaged, Reason: "not listed"}, {Name: status.HoldRequested, Reason: velum + ": because", Image: velum},
	}, Waits: []status.Hold{{Name: status.HoldWindow, Reason: "opens at noon"}}}
	findings := podFindings(pod)
	require.Len(t, findings, 2)
	found(t, findings[0], Warn, "hold: "+velum+": because", "image-update-agent resume velum")
	found(t, findings[1], Warn, "window: opens at noon", "wait for the window")
	findings = podFindings(plan.PodPlan{File: "velum.yaml", Change: "rebuild", Holds: pod.Holds[:1]})
	require.Len(t, findings, 1)
	found(t, findings[0], OK, "rebuild")
}

// An answer of a registry, and what to do about it.
func TestRemedies(t *testing.T) {
	t.Parallel()
	of := func(status int, err error) error { return &release.SourceError{Host: "r1", Status: status, Err: err} }
	verification := func(err error) error { return of(0, &tls.CertificateVerificationError{Err: err}) }
	for remedy, err := range map[string]error{
		"copy the image to the mirror":                of(404, release.ErrNotFound),
		"hosts.toml of r1":                            of(0, errors.New("connection refused")),
		"credentials":                                 of(401, errors.New("401")),
		"answers 503":                                 of(503, errors.New("503")),
		"check the clock of the node":                 verification(x509.CertificateInvalidError{Reason: x509.Expired}),
		"add the certificate authority to the system": verification(x509.UnknownAuthorityError{}),
		"hosts.toml of r1 ":                           verification(x509.CertificateInvalidError{Reason: x509.TooManyIntermediates}),
		"correct what the message names":              errors.New("something else"),
	} {
		assert.Contains(t, remedyOf(err)+" ", remedy)
	}
}

func TestRemedyOfAGrainsFileFitsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"flow": "{roles: admin}\n", "broken": "roles: [admin\n", "good": "roles: admin\n"} {
		require.NoError(t, os.WriteFile(path(name), []byte(text), 0o644))
	}
	require.NoError(t, os.Symlink("good", path("link")))
	check := func(name string) Finding {
		return checkGrains(t.Context(), config.Grains{Enabled: true, Path: path(name)})
	}
	found(t, check("good"), OK)
	found(t, check("link"), Fail, "replace the link by the file", "grains.path")
	found(t, check("flow"), Fail, "its own line")
	found(t, check("broken"), Fail, "repair the file by hand")
	found(t, checkGrains(t.Context(), config.Grains{}), Skipped, "grains.enabled")
}

func TestRemedyNamesTheSocketThatIsThere(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Containerd.Socket, n.CRI.Socket = n.at("run/containerd/containerd.sock"), n.at("run/containerd/containerd.sock")
	assert.Equal(t, "start it, or set cri.socket", n.socketRemedy("cri.socket", "start it"))
	path := n.at("run/k3s/containerd/containerd.sock")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	assert.Equal(t, "set cri.socket to "+path+", which exists; or start it", n.socketRemedy("cri.socket", "start it"))
	n.CRI.Socket = path
	assert.NotContains(t, n.socketRemedy("cri.socket", "start it"), path, "it is configured already")
}

func TestRemedyOfLoginsNamesTheKey(t *testing.T) {
	t.Parallel()
	foreign := &transport.ForeignRealmError{Registry: "registry.example.com", Realm: "gitlab.example.com"}
	refused := &release.SourceError{Repository: "r", Host: "registry.example.com", Status: 401, Err: errors.New("unauthorized")}
	assert.Contains(t, remedyOf(&release.SourceError{Repository: "r", Status: 401, Err: foreign}),
		`credentials: {tokenServers: {"registry.example.com": "gitlab.example.com"}}`)
	assert.Contains(t, remedyOf(refused), "credentials.file")
	assert.Contains(t, remedyOf(refused), "or containerd's configuration (registry.configs)")
	plain := &release.SourceError{
		Repository: "r", Host: "registry.example.com", Status: 401, Err: fmt.Errorf("refused: %w", transport.ErrPlainCredentials),
	}
	assert.Equal(t, "let registry.example.com answer over https, or without a login: over plain http the agent sends none",
		remedyOf(plain))
	assert.Contains(t, remedyOf(&release.SourceError{Unasked: true, Err: errors.New("budget")}), "requestsPerHour")
	assert.Contains(t, remedyOf(&release.SourceError{
		Unasked: true, Host: "r.example.com", Status: 429, RetryAt: time.Now(), Err: errors.New("asked to wait"),
	}), "r.example.com asks for it")
}

func TestWhatCannotBeLookedAtIsNotOK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	all := checkWritable([]string{filepath.Join(loop, "state")}, nil)
	require.NotEmpty(t, all)
	found(t, all[0], Warn, "not checked", "run doctor as root")
	found(t, checkWritable([]string{filepath.Join(dir, "none")}, nil)[0], Skipped, "not created yet")
}
