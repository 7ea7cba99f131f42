// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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

// EtcdCluster is Debian's etcd with three members on this machine, which a test stops and starts.
type EtcdCluster struct {
	t       testing.TB
	program string
	Members []*EtcdMember
	more    []string // flags of all members
}

// EtcdMember is a member of an EtcdCluster.
type EtcdMember struct {
	Name, dir    string
	Client, peer string // URLs
	Metrics      string
	Process      *exec.Cmd // nil: not running
	ended        chan struct{}
}

// StartEtcd starts a cluster. With more flags its clients use HTTPS.
func StartEtcd(t testing.TB, more ...string) *EtcdCluster {
	t.Helper()
	return StartEtcdAt(t, "127.0.0.1", more...)
}

// StartEtcdAt starts a cluster at an address of this machine.
func StartEtcdAt(t testing.TB, host string, more ...string) *EtcdCluster {
	t.Helper()
	c := &EtcdCluster{t: t, program: filepath.Join(Shell(t, Checkout(t), "tools/setup where etcd"), "etcd"), more: more}
	scheme := "http"
	if len(more) > 0 {
		scheme = "https"
	}
	for _, name := range []string{"a", "b", "c"} {
		url := func(scheme string) string {
			return scheme + "://" + net.JoinHostPort(host, fmt.Sprint(node.FreePort(t)))
		}
		c.Members = append(c.Members, &EtcdMember{
			Name: name, dir: t.TempDir(), Client: url(scheme), peer: url("http"), Metrics: url("http"),
		})
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.Kill()
		}
	})
	for _, m := range c.Members {
		c.Start(m)
	}
	for _, m := range c.Members {
		c.AwaitHealth(m)
	}
	return c
}

// Start starts a member, and does not wait until it is healthy.
func (c *EtcdCluster) Start(m *EtcdMember) {
	c.t.Helper()
	var cluster []string
	for _, each := range c.Members {
		cluster = append(cluster, each.Name+"="+each.peer)
	}
	args := append([]string{
		"--name=" + m.Name, "--data-dir=" + filepath.Join(m.dir, "data"), "--initial-cluster=" + strings.Join(cluster, ","),
		"--initial-cluster-state=new", "--listen-client-urls=" + m.Client, "--advertise-client-urls=" + m.Client,
		"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer, "--listen-metrics-urls=" + m.Metrics,
		"--logger=zap", "--log-outputs=" + filepath.Join(m.dir, "log"),
	}, c.more...)
	m.Process = exec.CommandContext(context.WithoutCancel(c.t.Context()), c.program, args...)
	m.Process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, m.Process.Start())
	m.ended = make(chan struct{})
	go func(p *exec.Cmd, ended chan struct{}) {
		_ = p.Wait()
		close(ended)
	}(m.Process, m.ended)
}

// Kill kills the member if it runs.
func (m *EtcdMember) Kill() {
	if m.Process != nil {
		_ = m.Process.Process.Kill()
		<-m.ended
		m.Process = nil
	}
}

// AwaitHealth waits until a member has a leader.
func (c *EtcdCluster) AwaitHealth(m *EtcdMember) {
	c.t.Helper()
	node.Eventually(c.t, "etcd "+m.Name, Ready, func() error {
		select {
		case <-m.ended:
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			c.t.Fatalf("etcd %s has ended: %s", m.Name, log)
		default:
		}
		resp, err := PlainClient.Get(m.Metrics + "/health")
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

// Leader returns the cluster's leader, once it has one.
func (c *EtcdCluster) Leader() (leader *EtcdMember) {
	c.t.Helper()
	node.Eventually(c.t, "leader of etcd", Ready, func() error {
		if leader = c.leader(); leader == nil {
			return errors.New("none")
		}
		return nil
	})
	return leader
}

func (c *EtcdCluster) leader() *EtcdMember {
	for _, m := range c.Members {
		if m.Process == nil {
			continue
		}
		resp, err := PlainClient.Post(
			m.Client+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
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
	return nil
}

// Store returns the cluster as the store of a lock server.
func (c *EtcdCluster) Store() fleetserver.Store {
	var s fleetserver.Store
	for _, m := range c.Members {
		s.URLs = append(s.URLs, m.Client)
	}
	return s
}
