// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// BenchmarkPublisher measures time and memory of each verb of image-catalog beside docker-registry, on a catalog of so
// many releases in images of 32 each.
func BenchmarkPublisher(b *testing.B) {
	for _, releases := range sized([]int{1000, 10_000, 100_000}, []int{100}) {
		b.Run(strconv.Itoa(releases), func(b *testing.B) { benchPublisher(b, releases) })
	}
}

// publisherBench is a registry with images, and the publisher.
type publisherBench struct {
	b       *testing.B
	program string
	usage   string // cmd/usage: the kernel would attribute the memory of this process to the program
	env     []string
}

func benchPublisher(b *testing.B, releases int) {
	b.Helper()
	n := node.Start(b, node.Options{})
	host := fmt.Sprintf("127.0.0.1:%d", n.FreePort())
	p := &publisherBench{b: b, program: n.CatalogProgram(), usage: tool(b, b.TempDir(), "usage")}
	began, storage := time.Now(), b.TempDir()
	batch := storeReleases(b, storage, host, releases)
	serveReleases(b, storage, host)
	b.Logf("%d releases stored in %s", releases, time.Since(began).Round(time.Second))
	keys := b.TempDir()
	p.env = append(os.Environ(), "IMAGE_CATALOG="+host+"/catalog", "COSIGN_PASSWORD=", "HOME="+keys)
	key := filepath.Join(keys, "k")
	p.run("keygen", key)
	key += ".key"
	p.run("init", "stage", "prod", "--key", key)
	p.run("add", "stage", "--batch", batch, "--key", key)
	p.run("add", "stage", host+"/made/image00000:"+benchTag(catalog.Kept), "--key", key)
	p.run("diff", "stage", "prod")
	p.run("promote", "stage", "prod", "--all", "--key", key)
	p.run("inspect", "stage")
	p.run("log", "stage")
	p.run("images", "stage")
	p.run("list")
	p.run("verify", "--trust", strings.TrimSuffix(key, "key")+"pub")
	p.run("withdraw", "prod", host+"/made/image00000:"+benchTag(catalog.Kept), "--reason", "bench", "--key", key)
	p.run("promote", "prod", "--revert", "--reason", "bench", "--key", key)
	b.ReportMetric(0, "ns/op")
}

// run runs a verb, and reports its time and the most memory that it had.
func (p *publisherBench) run(args ...string) {
	p.b.Helper()
	var errs bytes.Buffer
	used := filepath.Join(p.b.TempDir(), "used")
	cmd := exec.CommandContext(p.b.Context(), p.usage, append([]string{used, p.program}, args...)...)
	cmd.Env, cmd.Stderr = p.env, &errs
	began := time.Now()
	err := cmd.Run()
	require.NoError(p.b, err, "%s: %s", args, &errs)
	took := time.Since(began).Seconds()
	data, err := os.ReadFile(used)
	require.NoError(p.b, err)
	var cpu, rss int64
	_, err = fmt.Sscan(string(data), &cpu, &rss)
	require.NoError(p.b, err)
	name := args[0]
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "--batch") || arg == "--all" || arg == "--revert" {
			name += arg
		}
	}
	p.b.Logf("%-16s %7.2f s, %6.2f s of CPU, %4d MB", name, took, time.Duration(cpu).Seconds(), rss*1024/1e6)
	p.b.ReportMetric(took, name+"-s")
	p.b.ReportMetric(float64(rss)*1024/1e6, name+"-MB")
}

// benchTag is the tag of an image's n-th build.
func benchTag(n int) string { return fmt.Sprintf("4.0.0-rev1-build1.%d", n) }

// storeReleases writes releases as docker-registry stores them, which takes a tenth of the time of pushes, and returns
// the file with their names: all but one more build of the first image.
func storeReleases(b *testing.B, dir, host string, releases int) (batch string) {
	b.Helper()
	storage := filepath.Join(dir, "docker/registry/v2")
	config := []byte(`{"os":"linux","architecture":"amd64","created":"2026-11-20T08:00:00Z","rootfs":{"type":"layers","diff_ids":[]}}`)
	blob := func(data []byte) digest.Digest {
		d := digest.FromBytes(data)
		putFile(b, data, storage, "blobs/sha256", d.Encoded()[:2], d.Encoded(), "data")
		return d
	}
	configDigest := blob(config)
	var names strings.Builder
	var g errgroup.Group
	g.SetLimit(8)
	for first := 0; first < releases; first += catalog.Kept {
		image := fmt.Sprintf("made/image%05d", first/catalog.Kept)
		count := min(catalog.Kept, releases-first)
		for n := range count {
			fmt.Fprintf(&names, "%s/%s:%s\n", host, image, benchTag(n))
		}
		if first == 0 {
			count++ // to be added by itself
		}
		g.Go(func() error {
			repository := filepath.Join(storage, "repositories", image)
			link(b, configDigest, repository, "_layers/sha256", configDigest.Encoded())
			for n := range count {
				body, err := json.Marshal(ocispec.Manifest{
					Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
					Config:      ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: configDigest, Size: int64(len(config))},
					Layers:      []ocispec.Descriptor{},
					Annotations: map[string]string{"of": image + ":" + benchTag(n)},
				})
				if err != nil {
					return err
				}
				d := blob(body)
				link(b, d, repository, "_manifests/revisions/sha256", d.Encoded())
				link(b, d, repository, "_manifests/tags", benchTag(n), "current")
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	batch = filepath.Join(dir, "builds.txt")
	require.NoError(b, os.WriteFile(batch, []byte(names.String()), 0o600))
	return batch
}

// serveReleases starts docker-registry by itself: that of a node is behind a proxy of the tests.
func serveReleases(b *testing.B, dir, host string) {
	b.Helper()
	program, err := exec.LookPath("docker-registry")
	require.NoError(b, err)
	config := filepath.Join(dir, "config.yml")
	require.NoError(b, os.WriteFile(config, fmt.Appendf(nil, "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"+
		"storage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", dir, host), 0o600))
	cmd := exec.Command(program, "serve", config)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	node.Eventually(b, "docker-registry", node.Patience, func() error {
		conn, err := net.Dial("tcp", host)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

func link(b *testing.B, d digest.Digest, parts ...string) {
	b.Helper()
	putFile(b, []byte(d), append(parts, "link")...)
}

func putFile(b *testing.B, data []byte, parts ...string) {
	b.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Error(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Error(err)
	}
}
