// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// benchReleases is the number of listed releases per image: the maximum of a page.
const benchReleases = catalog.Kept

// BenchmarkCatalog measures the cost of a release catalog for the registry and a node with 20 images: bytes in the
// registry, bytes of the first poll and of a poll after a change, requests of a poll without one, and the memory of the
// daemon. A poll's requests are compared with regsync's for 20 and 200 images.
func BenchmarkCatalog(b *testing.B) {
	for _, images := range sized([]int{20, 200, 3125}, []int{20}) { // 3,125 pages list 100,000 releases
		b.Run(strconv.Itoa(images), func(b *testing.B) { benchCatalog(b, images) })
	}
	for _, images := range sized([]int{20, 200}, []int{20}) {
		b.Run(fmt.Sprintf("regsync-%d", images), func(b *testing.B) {
			n := node.Start(b, node.Options{Containerd: node.Containerd2})
			m := startMeter(b, n)
			n.Registry.Intercept(alias)
			publishTags(b, n, 50)
			g := startPolled(b, n, m, images, 50)
			one := &polled{n: n, meter: m, refs: g.refs[:1], home: g.home, usage: g.usage}
			var ratios []float64
			for range sized(5, 1) {
				head, sync := one.requests(b), g.polls(b, g.sync, g.few())
				ratios = append(ratios, head.cpu.Seconds()/head.polls/(sync.cpu.Seconds()/sync.polls))
			}
			b.ReportMetric(median(ratios), "requests-cpu-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchCatalog(b *testing.B, images int) {
	b.Helper()
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	n.Registry.Intercept(alias)
	publishTags(b, n, 50)
	image := n.Registry.Push("bench/tags50", node.Image{}, "1.0.0-rev1", "1.0.0-rev1-build1.1")
	c := &benchChannel{b: b, n: n, manifest: catalog.Manifest{
		Name: n.Registry.Ref("catalog"), Channel: "prod", Created: time.Now().UTC().Truncate(time.Second),
	}}
	var refs []string
	for i := range images {
		name := fmt.Sprintf("%s/tags50/app%05d", n.Registry.Host, i)
		c.page(name, image, 1)
		if i < images20 {
			refs = append(refs, name+":1.0.0-rev1")
		}
	}
	size := c.publish()
	b.ReportMetric(float64(size)/1e6, "registry-MB")
	config := "interval: 1s\nconfirmAfter: 0\nrequestsPerHour: 0\nimages:\n- " + strings.Join(refs, "\n- ") + "\n"
	n.WriteFile(story.ConfigFile, config)
	plain := idleDaemon(b, n)
	n.WriteFile(story.ConfigFile, config+"catalog: {repository: "+n.Registry.Ref("catalog")+", signatures: \"off\"}\n")

	first := c.poll()
	b.ReportMetric(float64(first.Bytes(node.Manifest)+first.Bytes(node.Blob))/1e3, "first-kB")
	c.page(strings.TrimSuffix(refs[0], ":1.0.0-rev1"), image, 2)
	c.publish()
	change := c.poll()
	b.ReportMetric(float64(change.Bytes(node.Manifest)+change.Bytes(node.Blob))/1e3, "change-kB")
	b.ReportMetric(float64(len(c.poll())), "requests/poll")
	b.ReportMetric(idleDaemon(b, n)-plain, "rss-growth-MB")
	b.ReportMetric(0, "ns/op")
}

// idleDaemon returns the memory of a daemon after 20 polls, in MB.
func idleDaemon(b *testing.B, n *node.Node) float64 {
	b.Helper()
	process := story.StartDaemon(b, n)
	defer process.Stop()
	n.Registry.Forget()
	enough := sized(20, 2)
	node.Eventually(b, "polls", story.Ready, func() error {
		polls := map[string]int{}
		for _, r := range n.Registry.Requests() {
			if r.Method == http.MethodHead {
				polls[r.Repository+":"+r.Reference]++
			}
		}
		for _, count := range polls {
			if count >= enough {
				return nil
			}
		}
		return fmt.Errorf("%d tags are asked for", len(polls))
	})
	return memory(b, pidOf(b, n), "VmRSS")
}

// benchChannel publishes versions of a channel with a given number of pages.
type benchChannel struct {
	b        *testing.B
	n        *node.Node
	manifest catalog.Manifest
	size     int64
	blobs    [][]byte
}

// page lists an image with its newest release and older ones.
func (c *benchChannel) page(name, newest string, edition int) {
	p := catalog.Page{Image: name}
	for i := range benchReleases {
		r := catalog.Release{
			Tag: fmt.Sprintf("1.0.0-rev1-build1.%d", i+1), Digest: digest.FromString(fmt.Sprint(name, i, edition)),
			Created: c.manifest.Created.Add(-time.Duration(i) * time.Hour),
		}
		if i == 0 {
			r.Digest = digest.Digest(newest)
		}
		p.Releases = append(p.Releases, r)
	}
	data, err := p.Encode()
	require.NoError(c.b, err)
	c.manifest.SetPage(catalog.PageRef{Image: name, Digest: digest.FromBytes(data), Size: int64(len(data))})
	c.size += int64(len(data))
	c.blobs = append(c.blobs, data)
}

// publish returns the number of bytes that the version adds to the registry.
func (c *benchChannel) publish() int64 {
	c.b.Helper()
	c.manifest.Version++
	text, _, err := c.manifest.Encode()
	require.NoError(c.b, err)
	client, err := store.New(store.Options{PlainHTTP: true})
	require.NoError(c.b, err)
	for _, blob := range append(c.blobs, []byte("{}")) {
		_, err := client.PutBlob(c.b.Context(), c.manifest.Name, blob)
		require.NoError(c.b, err)
	}
	c.blobs = nil
	require.NoError(c.b, client.PutManifest(c.b.Context(), c.manifest.Name, c.manifest.Channel, text))
	size := c.size + int64(len(text))
	c.size = 0
	return size
}

// poll runs one cycle and returns the requests for the catalog.
func (c *benchChannel) poll() node.Requests {
	c.b.Helper()
	c.n.Registry.Forget()
	r := c.n.Agent("run", "--once")
	require.Zero(c.b, r.Code, r.Stdout+r.Stderr)
	var out node.Requests
	for _, q := range c.n.Registry.Requests() {
		if q.Repository == "catalog" {
			out = append(out, q)
		}
	}
	return out
}
