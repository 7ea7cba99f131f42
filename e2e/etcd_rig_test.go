// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// etcdCluster is Debian's etcd with three members on this machine, which a test stops and starts.
type etcdCluster struct {
	t       testing.TB
	program string
	members []*etcdMember
	more    []string // flags for all
}

type etcdMember struct {
	name, dir    string
	client, peer string // URLs
	metrics      string
	process      *exec.Cmd // nil: it does not run
	ended        chan struct{}
}

// startEtcd starts a cluster. With more flags its clients speak https.
func startEtcd(t testing.TB, more ...string) *etcdCluster {
	t.Helper()
	checkout, err := filepath.Abs("..")
	require.NoError(t, err)
	c := &etcdCluster{t: t, program: filepath.Join(shell(t, checkout, "tools/setup where etcd"), "etcd"), more: more}
	scheme := "http"
	if len(more) > 0 {
		scheme = "https"
	}
	for _, name := range []string{"a", "b", "c"} {
		url := func(scheme string) string { return scheme + "://" + address(node.FreePort(t)) }
		c.members = append(c.members, &etcdMember{
			name: name, dir: t.TempDir(), client: url(scheme), peer: url("http"), metrics: url("http"),
		})
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
		}
	})
	for _, m := range c.members {
		c.start(m)
	}
	for _, m := range c.members {
		c.awaitHealth(m)
	}
	return c
}

func (c *etcdCluster) start(m *etcdMember) {
	c.t.Helper()
	var cluster []string
	for _, each := range c.members {
		cluster = append(cluster, each.name+"="+each.peer)
	}
	args := append([]string{
		"--name=" + m.name, "--data-dir=" + filepath.Join(m.dir, "data"), "--initial-cluster=" + strings.Join(cluster, ","),
		"--initial-cluster-state=new", "--listen-client-urls=" + m.client, "--advertise-client-urls=" + m.client,
		"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer, "--listen-metrics-urls=" + m.metrics,
		"--logger=zap", "--log-outputs=" + filepath.Join(m.dir, "log"),
	}, c.more...)
	m.process = exec.CommandContext(context.WithoutCancel(c.t.Context()), c.program, args...)
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, m.process.Start())
	m.ended = make(chan struct{})
	go func(p *exec.Cmd, ended chan struct{}) {
		_ = p.Wait()
		close(ended)
	}(m.process, m.ended)
}

func (m *etcdMember) kill() {
	if m.process != nil {
		_ = m.process.Process.Kill()
		<-m.ended
		m.process = nil
	}
}

// awaitHealth waits until a member has a leader.
func (c *etcdCluster) awaitHealth(m *etcdMember) {
	c.t.Helper()
	node.Eventually(c.t, "etcd "+m.name, ready, func() error {
		select {
		case <-m.ended:
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			c.t.Fatalf("etcd %s has ended: %s", m.name, log)
		default:
		}
		resp, err := plainClient.Get(m.metrics + "/health")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(body), `"health":"true"`) {
			err = fmt.Errorf("%s", body)
		}
		return err
	})
}

// leader is the member that leads.
func (c *etcdCluster) leader() *etcdMember {
	c.t.Helper()
	for _, m := range c.members {
		if m.process == nil {
			continue
		}
		resp, err := plainClient.Post(
			m.client+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
		if err != nil {
			continue
		}
		var status struct {
			Header struct {
				MemberID string `json:"member_id"`
			} `json:"header"`
			Leader string `json:"leader"`
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err == nil && status.Leader == status.Header.MemberID {
			return m
		}
	}
	c.t.Fatal("etcd has no leader")
	return nil
}

// store is the cluster for a lock server.
func (c *etcdCluster) store() fleetserver.Store {
	var s fleetserver.Store
	for _, m := range c.members {
		s.URLs = append(s.URLs, m.client)
	}
	return s
}
