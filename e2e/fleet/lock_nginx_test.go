// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// lockNginx starts the nginx of docs/lock-server.md in front of a lock server with plain HTTP, and returns its URL.
func lockNginx(t *testing.T, upstream, ca, cert, key string) string {
	t.Helper()
	text, err := os.ReadFile("../../packaging/lock-server/nginx.conf")
	require.NoError(t, err)
	host, dir := story.Address(node.FreePort(t)), t.TempDir()
	virtual := string(text)
	for _, pair := range [][2]string{
		{"listen 443 ssl;", "listen " + host + " ssl;"},
		{"/etc/nginx/lock/server.pem", cert},
		{"/etc/nginx/lock/server.key", key},
		{"/etc/nginx/lock/nodes-ca.pem", ca},
		{"http://127.0.0.1:3333", upstream},
	} {
		require.Contains(t, virtual, pair[0], "nginx.conf")
		virtual = strings.ReplaceAll(virtual, pair[0], pair[1])
	}
	var temp strings.Builder
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s;\n", name, filepath.Join(dir, name))
	}
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"user root;\ndaemon off;\nworker_processes 1;\npid %[1]s/pid;\nerror_log %[1]s/error.log;\nevents {}\nhttp {\n"+
			"access_log off;\n%[2]s%[3]s\n}\n", dir, temp.String(), virtual), 0o600))
	cmd := exec.CommandContext(t.Context(), "/usr/sbin/nginx", "-e", filepath.Join(dir, "error.log"), "-c", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the workers end, too
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	node.Eventually(t, "nginx", story.Ready, func() error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return "https://" + host
}

// The lock server behind the page's nginx: nodes with a certificate get the lock one after another, others get nothing,
// and a stopped server grants no lock.
func TestLockServerBehindNginx(t *testing.T) {
	t.Parallel()
	named := func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "node"} } // else OpenSSL sees a self-signed one
	ca, cert, key := registrytest.Certificate(t, named)
	_, foreignCert, foreignKey := registrytest.Certificate(t, named)
	url := lockNginx(t, lockServer(t, story.StartEtcd(t).Store()), ca, cert, key)
	of := func(url, id, cert, key string) fleet.Locker {
		c, err := fleetlock.New(fleetlock.Options{
			URL: url, Group: "masters", ID: id, CA: ca, Cert: cert, Key: key, Version: "test", Timeout: story.Ready,
		})
		require.NoError(t, err)
		return c
	}
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return of(url, id, cert, key) })
	for name, l := range map[string]fleet.Locker{
		"no certificate": of(url, "c", "", ""), "another authority's": of(url, "c", foreignCert, foreignKey),
		"another path": of(url+"/x", "c", cert, key),
	} {
		_, err := l.Lock(t.Context())
		require.ErrorIs(t, err, release.ErrHeld, name)
		require.Error(t, l.Unlock(t.Context()), name)
	}
	down := lockNginx(t, "http://"+story.Address(node.FreePort(t)), ca, cert, key)
	_, err := of(down, "a", cert, key).Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 502, e.Status)
}
