// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// aways are the ways in which a registry may be away, and the error of a pull without the local registry. An empty
// error means that the pull takes long.
var aways = map[node.Away]string{
	node.Refused: "connection refused", node.Reset: "connection reset by peer", node.Expired: "certificate has expired",
	node.Status401: "failed to resolve", node.Status403: "403 Forbidden", node.Status404: "not found",
	node.Status429: "429 Too Many Requests", node.Status500: "500 Internal Server Error",
	node.Status503: "503 Service Unavailable",
	node.Blackhole: "", node.SilentDNS: "", node.SilentTLS: "", node.SilentHTTP: "",
	node.LoginPage: "",
}

// TestPullsFromARegistryThatIsAway checks that the local registry serves kubelet's pull of an image that the node has
// if its registry is away, and gets no request if the registry answers.
//
// Two ways cannot be helped: a login page counts as a response, and containerd before 2.3 waits without limit for
// response headers.
func TestPullsFromARegistryThatIsAway(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		n := node.Start(t, node.Options{Containerd: version})
		r := &awayRig{Node: n, up: map[node.Away]node.Upstream{}}
		story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
		var names, images []string
		for away := range aways {
			r.up[away] = n.StartAway(away)
			names, images = append(names, r.name(away)), append(images, r.image(away))
			n.WriteHosts(r.name(away), n.Registry)
			_, err := r.pull(t.Context(), away)
			require.NoError(t, err, "the image comes to the node")
		}
		for away, said := range aways {
			r.hosts(away)
			if said == "" {
				continue
			}
			_, err := r.pull(t.Context(), away)
			require.ErrorContains(t, err, said, away)
		}
		own := n.LocalRegistry(names...)
		story.SaveTable(t, n, images...)
		enable(t, n, names...)
		hangs := strings.Contains(n.Agent("doctor").Stdout, "never answers")
		assert.Equal(t, version != node.Containerd2, hangs, "doctor says what is not helped")
		r.pullAll(t, own, version)
	})
}

// awayRig has an upstream for each way, each with its own name.
type awayRig struct {
	*node.Node
	up map[node.Away]node.Upstream
}

// name returns the registry name for a way. All nodes of the machine share the local registry's address, so the name
// contains the node's port.
func (r *awayRig) name(away node.Away) string {
	_, port, _ := strings.Cut(r.Registry.Host, ":")
	return strings.ReplaceAll(string(away), " ", "-") + ".n" + port + ".example.com"
}

func (r *awayRig) image(away node.Away) string { return r.name(away) + "/demo/velum:4.0.0-rev1" }

func (r *awayRig) pull(ctx context.Context, away node.Away) (string, error) {
	answer, err := r.CRI().Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: r.image(away)}})
	return answer.GetImageRef(), err
}

// hosts writes an admin's hosts.toml for the upstream.
func (r *awayRig) hosts(away node.Away) { story.AdminsHosts(r.Node, r.name(away), r.up[away]) }

// pullAll pulls from all upstreams at once.
func (r *awayRig) pullAll(t *testing.T, own *node.LocalRegistry, version node.Version) {
	t.Helper()
	hangs := version != node.Containerd2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs, took := map[node.Away]error{}, map[node.Away]time.Duration{}
	var lock sync.Mutex
	var ends, hung sync.WaitGroup
	for away := range aways {
		group := &ends
		if hangs && away == node.SilentHTTP {
			group = &hung
		}
		group.Go(func() {
			began := time.Now()
			_, err := r.pull(ctx, away)
			lock.Lock()
			defer lock.Unlock()
			errs[away], took[away] = err, time.Since(began)
		})
	}
	ends.Wait()
	asked := map[string]int{}
	for _, q := range own.Requests() {
		asked[q.Registry]++
	}
	for away := range aways {
		if away == node.LoginPage || hangs && away == node.SilentHTTP {
			continue
		}
		assert.NoError(t, errs[away], away)
		assert.Equal(t, 1, asked[r.name(away)], away)
	}
	// `enable` has proposed a dial_timeout of 2 s. containerd 1 ignores the key, and waits 30 s. A machine that is slow is
	// so with each.
	if waited := took[node.Blackhole] - took[node.Refused]; version == node.Containerd2 {
		assert.Less(t, waited, 30*time.Second)
	} else {
		assert.Greater(t, waited, 2*time.Second)
	}
	assert.ErrorContains(t, errs[node.LoginPage], "text/html")
	assert.Zero(t, asked[r.name(node.LoginPage)])
	if hangs {
		<-r.up[node.SilentHTTP].Met
		assert.NotContains(t, errs, node.SilentHTTP, "it waits, longer than for a connection")
		assert.Zero(t, asked[r.name(node.SilentHTTP)])
		cancel()
		hung.Wait()
	}
	for _, q := range own.Requests() {
		assert.Equal(t, "HEAD manifest", q.Method+" "+string(q.Kind), "%+v", q)
	}
}
