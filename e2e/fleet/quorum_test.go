// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	rig "github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// tlsFlags are etcd's flags for https with client certificates.
func tlsFlags(ca, cert, key string) []string {
	return []string{"--trusted-ca-file=" + ca, "--cert-file=" + cert, "--key-file=" + key}
}

// etcdPod is the pod manifest of a member.
func etcdPod(m *story.EtcdMember, metrics bool, flags []string) []node.PodFile {
	all := append([]string{"--name=" + m.Name, "--listen-client-urls=" + m.Client}, flags...)
	if metrics {
		all = append(all, "--listen-metrics-urls="+m.Metrics)
	}
	return []node.PodFile{controlPlanePod("etcd", all)}
}

func controlPlanePod(name string, flags []string) node.PodFile {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers:\n  - name: " + name + "\n    command:\n    - " + name + "\n"
	for _, f := range flags {
		text += "    - " + f + "\n"
	}
	return node.PodFile{Name: name + ".yaml", Data: []byte(text)}
}

// Members of a real etcd with https and client certificates, found by the flags in one member's pod manifest.
func TestQuorumOfEtcd(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	flags := tlsFlags(ca, cert, key)
	cluster := story.StartEtcd(t, append(flags, "--client-cert-auth=true")...)
	own := func(m *story.EtcdMember, metrics bool) []node.PodFile { return etcdPod(m, metrics, flags) }
	a, b, c := cluster.Members[0], cluster.Members[1], cluster.Members[2]
	for _, metrics := range []bool{true, false} {
		seen := awaitHealthy(t, own(a, metrics), "etcd member a")
		assert.Empty(t, fleet.Against(seen, false))
	}
	b.Kill()
	rig.Eventually(t, "b alone is down", story.Ready, func() error { // after the others have a leader again
		against := fleet.Against(quorum.Control{}.Observe(t.Context(), own(a, true)), false)
		if !strings.HasPrefix(against, "etcd member b: ") || !strings.Contains(against, "connection refused") ||
			strings.Contains(against, "member c") {
			return errors.New(against)
		}
		return nil
	})
	seen := quorum.Control{}.Observe(t.Context(), own(b, true))
	assert.NotEmpty(t, fleet.Against(seen, false), "nobody answers on the node of the member that is down")
	c.Kill()
	seen = quorum.Control{}.Observe(t.Context(), own(a, true))
	assert.NotEmpty(t, fleet.Against(seen, false), "without a quorum nothing is stopped")
}

// awaitHealthy waits until an observation finds all three members healthy, and returns it: a busy etcd may have no leader
// for a moment, or exceed the time of one observation.
func awaitHealthy(t *testing.T, files []node.PodFile, local string) (seen fleet.Observation) {
	t.Helper()
	var want []fleet.Part
	for _, name := range []string{"etcd member a", "etcd member b", "etcd member c"} {
		want = append(want, fleet.Part{Name: name, Local: name == local, Healthy: true})
	}
	rig.Eventually(t, "all members are healthy", story.Ready, func() error {
		seen = quorum.Control{}.Observe(t.Context(), files)
		slices.SortFunc(seen.Members, func(a, b fleet.Part) int { return strings.Compare(a.Name, b.Name) })
		if seen.Err == nil && slices.Equal(want, seen.Members) {
			return nil
		}
		return errors.Join(seen.Err, fmt.Errorf("%+v", seen.Members))
	})
	return seen
}

// awaitAgainst waits until an observation of etcd's members has a reason not to stop, and returns it.
func awaitAgainst(t *testing.T, files []node.PodFile, prefix string) {
	t.Helper()
	rig.Eventually(t, prefix, story.Ready, func() error {
		o := quorum.Control{}.Observe(t.Context(), files)
		o.Servers = nil // no API server runs here
		if against := fleet.Against(o, true); !strings.HasPrefix(against, prefix) {
			return errors.New(against)
		}
		return nil
	})
}

// A node with IPv6 only: its etcd listens at, and advertises, an IPv6 address.
func TestQuorumOverIPv6(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t, func(c *x509.Certificate) {
		if !c.IsCA {
			c.IPAddresses = append(c.IPAddresses, net.IPv6loopback)
		}
	})
	flags := tlsFlags(ca, cert, key)
	cluster := story.StartEtcdAt(t, "::1", append(flags, "--client-cert-auth=true")...)
	a, b := cluster.Members[0], cluster.Members[1]
	require.True(t, strings.HasPrefix(a.Client, "https://[::1]:"))
	everywhere := *a
	everywhere.Client = strings.Replace(a.Client, "[::1]", "[::]", 1)
	for _, m := range []*story.EtcdMember{a, &everywhere} {
		awaitHealthy(t, etcdPod(m, false, flags), "etcd member a")
	}
	b.Kill()
	awaitAgainst(t, etcdPod(a, false, flags), "etcd member b: [::1]:")
}

// An API server with an external etcd, named by its members or by a load balancer in front of them: all members count,
// and none is of this node.
func TestQuorumOfExternalEtcd(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	cluster := story.StartEtcd(t, append(tlsFlags(ca, cert, key), "--client-cert-auth=true")...)
	a, b, c := cluster.Members[0], cluster.Members[1], cluster.Members[2]
	client := []string{"--etcd-cafile=" + ca, "--etcd-certfile=" + cert, "--etcd-keyfile=" + key}
	api := func(servers string, more ...string) []node.PodFile {
		return []node.PodFile{controlPlanePod("kube-apiserver", append([]string{"--etcd-servers=" + servers}, more...))}
	}
	balancer := "https://" + balance(t, a.Client, b.Client, c.Client)
	forms := []string{strings.Join([]string{a.Client, b.Client, c.Client}, ","), c.Client, balancer}
	for _, servers := range forms {
		awaitHealthy(t, api(servers, client...), "none")
	}
	// What is not understood is not known.
	for name, files := range map[string][]node.PodFile{
		"no client certificate":      api(balancer, "--etcd-cafile="+ca),
		"a file that is not there":   api(balancer, "--etcd-cafile=/nowhere/ca.crt"),
		"a socket":                   api("unix:///run/etcd.sock", client...),
		"another cluster's address":  api(a.Client+",https://127.0.0.1:1,"+story.StartEtcd(t).Members[0].Client, client...),
		"no server":                  api("", client...),
		"nobody answers at its name": api("https://127.0.0.1:1", client...),
	} {
		assert.Error(t, quorum.Control{}.Observe(t.Context(), files).Err, name)
	}
	b.Kill()
	for _, servers := range forms {
		awaitAgainst(t, api(servers, client...), "etcd member b: 127.0.0.1:")
	}
}

// balance starts a load balancer in front of servers, which skips those that are down, and returns its address.
func balance(t *testing.T, servers ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var turn atomic.Int64
	serve := func(in net.Conn) {
		defer func() { _ = in.Close() }()
		for range servers {
			_, at, _ := strings.Cut(servers[int(turn.Add(1))%len(servers)], "://")
			out, err := net.Dial("tcp", at)
			if err != nil {
				continue
			}
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			}()
			_, _ = io.Copy(in, out)
			return
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go serve(in)
		}
	}()
	return l.Addr().String()
}
