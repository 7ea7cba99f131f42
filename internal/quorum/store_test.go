// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/quorum"
)

// The etcd with the cluster's objects is the one that the API server uses, over TLS with its certificates, also if this
// node runs another; without an API server, it is that of the node.
func TestEtcdOfTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e, events := c.etcd("a", "b"), c.etcd("events")
	api := func(name, servers string) node.PodFile {
		f := manifest("kube-apiserver", "--etcd-servers="+servers, "--etcd-cafile=/pki/ca.crt", "--etcd-certfile=/pki/a.crt",
			"--etcd-keyfile=/pki/a.key")
		f.Name = name
		return f
	}
	both := "https://" + e.members[0].at + ",https://" + e.members[1].at
	own := c.etcdManifest("events", events.members[0].at)
	broken := node.PodFile{Name: "x.yaml", Data: []byte("kind: Pod\nspec: 1\n")}
	for title, one := range map[string]struct {
		files []node.PodFile
		want  string // the members that are asked, in order; or the error
	}{
		"an API server":              {[]node.PodFile{api("a.yaml", both)}, "a b"},
		"and another etcd":           {[]node.PodFile{own, api("a.yaml", both)}, "a b"},
		"and a broken file":          {[]node.PodFile{broken, api("a.yaml", both)}, "a b"},
		"two API servers of one":     {[]node.PodFile{api("a.yaml", both), api("b.yaml", both)}, "a b"},
		"of two":                     {[]node.PodFile{api("a.yaml", both), api("b.yaml", "http://127.0.0.1:1")}, "the pod manifests of this node name several etcds"},
		"an etcd":                    {[]node.PodFile{own}, "events"},
		"two etcds":                  {[]node.PodFile{own, rename(c.etcdManifest("a", e.members[0].at), "x")}, "name several etcds"},
		"an etcd and a broken file":  {[]node.PodFile{own, broken}, "pod manifest x.yaml: cannot be read as a Pod"},
		"an API server without etcd": {[]node.PodFile{own, manifest("kube-apiserver")}, "pod manifest kube-apiserver.yaml: etcd-servers is not set"},
		"one that is not understood": {[]node.PodFile{own, manifest("kube-apiserver", "x")}, "pod manifest kube-apiserver.yaml: cannot read its arguments"},
		"none":                       {nil, "no pod manifest of this node runs kube-apiserver or etcd"},
	} {
		var mu sync.Mutex
		var dialed []string
		ask, err := quorum.Control{Root: c.root, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			dialed = append(dialed, address)
			mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}.Etcd(one.files)
		if strings.Contains(one.want, " ") && one.want != "a b" {
			require.ErrorContains(t, err, one.want, title)
			continue
		}
		require.NoError(t, err, title)
		require.NoError(t, ask(t.Context(), get), title)
		assert.Len(t, dialed, 1, title)
		asked := 0
		err = ask(t.Context(), func(ctx context.Context, client *clientv3.Client) error {
			asked++
			return errors.Join(get(ctx, client), errors.New("SECRET"))
		})
		require.ErrorContains(t, err, ": cannot read its answer", title)
		assert.NotContains(t, err.Error(), "SECRET")
		assert.Len(t, strings.Fields(one.want), asked, "%s: each is asked", title)
		var want []string
		for _, m := range append(e.members, events.members...) {
			if strings.Contains(" "+one.want+" ", " "+m.Name+" ") {
				want = append(want, m.at)
			}
		}
		assert.Equal(t, want, dialed[1:], title)
	}
}

func get(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Get(ctx, "health")
	return err
}

// When the time is over, no further member is asked.
func TestEndOfAQuestion(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ask, err := quorum.Control{Dial: func(context.Context, string, string) (net.Conn, error) {
		cancel()
		return nil, context.Canceled
	}}.Etcd([]node.PodFile{manifest("kube-apiserver", "--etcd-servers=http://127.0.0.1:1,http://127.0.0.1:2")})
	require.NoError(t, err)
	err = ask(ctx, get)
	require.ErrorContains(t, err, "127.0.0.1:1: ")
	assert.NotContains(t, err.Error(), "127.0.0.1:2")
}
