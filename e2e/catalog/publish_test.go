// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// publishers is a registry with a catalog, and the real publisher.
type publishers struct {
	node     *node.Node
	registry *node.Registry
	program  string
	env      []string
	key, pub string // files
}

// catalogRegistries are the registries that the publisher's stories run beside: one, and both in `make soak`.
func catalogRegistries() map[string]node.RegistryProgram {
	all := map[string]node.RegistryProgram{"docker-registry-2.8": node.DockerRegistry}
	if node.Soak {
		all["distribution-3"] = node.Distribution3
	}
	return all
}

func newPublishers(t *testing.T, program node.RegistryProgram) *publishers {
	t.Helper()
	n := node.Start(t, node.Options{})
	p := &publishers{node: n, registry: n.Registry, program: n.CatalogProgram()}
	if program != node.DockerRegistry {
		p.registry = n.StartRegistryWith(node.RegistryOptions{Program: program})
	}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "IMAGE_CATALOG=" + p.registry.Ref("catalog")}
	p.key, p.pub = catalogKeys(t)
	return p
}

// catalogKeys are the files of a private key and its public one.
func catalogKeys(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	open, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	dir := t.TempDir()
	private, public = filepath.Join(dir, "key.pem"), filepath.Join(dir, "pub.pem")
	require.NoError(t, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	require.NoError(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open}), 0o600))
	return private, public
}

func (p *publishers) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.program, args...)
	cmd.Env = p.env
	return cmd
}

// run runs the publisher to its end.
func (p *publishers) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := p.command(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		assert.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// does runs what must succeed.
func (p *publishers) does(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := p.run(t, args...)
	require.Equal(t, 0, code, "%s: %s%s", args, out, errs)
	return out
}

// channel is a part of `inspect --output json`.
type channel struct {
	Version uint64
	Digest  string
	Images  []struct {
		Image    string
		Releases []struct{ Tag, Digest string }
	}
	Waiting []struct{ Op, Why string }
	History []struct {
		Version uint64
		Ops     []string
	}
}

func (p *publishers) inspect(t *testing.T, args ...string) channel {
	t.Helper()
	var c channel
	out := p.does(t, append([]string{"inspect", "--output", "json"}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(out), &c), out)
	return c
}

// tags are what a channel lists, as IMAGE:TAG.
func (c channel) tags() map[string]bool {
	tags := map[string]bool{}
	for _, i := range c.Images {
		for _, r := range i.Releases {
			tags[i.Image+":"+r.Tag] = true
		}
	}
	return tags
}

// killedAnytime kills a publisher at a random moment, and reports whether it was still running.
func (p *publishers) killedAnytime(t *testing.T, args ...string) bool {
	t.Helper()
	cmd := p.command(t, args...)
	if !assert.NoError(t, cmd.Start()) {
		return false
	}
	timer := time.AfterFunc(mathrand.N(2*time.Second), func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode() < 0
}

// Fourteen publishers add builds, one by one and at once, while three prune. One in three commands is killed at a random
// moment, and repeated. Each add that was reported as done is in the channel, and no publisher is told otherwise.
// `make soak` sets IUA_ROUNDS, the number of builds of each; 200 take some minutes.
func TestNoAddOfManyPublishersIsLost(t *testing.T) {
	t.Parallel()
	count, adds := 14, story.SoakRounds(t, 2)
	for label, program := range catalogRegistries() {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			p := newPublishers(t, program)
			for n := range count {
				var tags []string
				for m := range adds {
					// Each has its short tag, or the page would keep the newest only.
					tags = append(tags, fmt.Sprintf("%d.0-rev1-build1.1", m))
				}
				p.registry.Push(fmt.Sprintf("image%d", n), node.Image{}, tags...)
			}
			p.does(t, "init", "stage", "--key", p.key)
			began := time.Now()
			var kills atomic.Int64
			var wg sync.WaitGroup
			for n := range count {
				wg.Go(func() {
					for m := range adds {
						image, right := p.registry.Ref(fmt.Sprintf("image%d:%d.0-rev1-build1.1", n, m)), []int{0}
						if (n+m)%3 == 0 {
							right = []int{0, 3} // the first add may have ended, or stored the build before it was killed
							if p.killedAnytime(t, "add", "stage", image, "--key", p.key) {
								kills.Add(1)
							}
						}
						_, errs, code := p.run(t, "add", "stage", image, "--key", p.key)
						assert.Contains(t, right, code, "%s: %s", image, errs)
					}
				})
			}
			var pruners sync.WaitGroup
			isDone := make(chan struct{})
			for range 3 {
				pruners.Go(func() {
					for {
						if mathrand.N(3) == 0 && p.killedAnytime(t, "prune", "stage", "--keep", "1", "--key", p.key) {
							kills.Add(1)
						}
						out, errs, code := p.run(t, "prune", "stage", "--keep", "1", "--key", p.key)
						assert.Contains(t, []int{0, 3}, code, "%s%s", out, errs)
						select {
						case <-isDone:
							return
						default:
						}
					}
				})
			}
			wg.Wait()
			close(isDone)
			pruners.Wait()
			t.Logf("%d adds of %d publishers in %s, with %d kills, %d versions",
				count*adds, count, time.Since(began).Round(time.Second), kills.Load(), p.inspect(t, "stage").Version)
			var every []string
			for n := range count {
				every = append(every, fmt.Sprintf("image%d", n))
			}
			c := p.inspect(t, append([]string{"stage"}, every...)...)
			assert.Len(t, c.tags(), count*adds)
			assert.Empty(t, c.Waiting)
			assert.Contains(t, p.does(t, "verify", "--trust", p.pub), "no problems found")
		})
	}
}

// A publisher that is killed at any of its requests leaves a catalog that is read as before, and the next publisher
// completes what it asked for. `make test` has every third request.
func TestPublisherKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	nth := 3
	if node.Soak {
		nth = 1
	}
	for label, program := range catalogRegistries() {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			p := newPublishers(t, program)
			p.does(t, "init", "stage", "--key", p.key)
			asked := map[string]bool{}
			var added int
			for at := 1; ; at += nth {
				tag := fmt.Sprintf("%d.0-rev1-build1.1", at)
				image := p.registry.Ref("velum:" + tag)
				p.registry.Push("velum", node.Image{}, tag)
				hasOp, isKilled := p.killedAt(t, at, "add", "stage", image, "--key", p.key)
				p.inspect(t, "stage", "--trust", p.pub)
				if hasOp || !isKilled {
					asked[image] = true
				}
				out, errs, code := p.run(t, "refresh", "stage", "--key", p.key)
				require.Contains(t, []int{0, 3}, code, "%s%s", out, errs)
				if added = len(asked); added > 0 {
					require.Equal(t, asked, p.inspect(t, "stage", "velum").tags(), "killed at request %d", at)
				}
				if !isKilled {
					break
				}
				require.Less(t, at, 200)
			}
			t.Logf("%d adds were completed", added)
			assert.Greater(t, added, 15/nth)
			assert.Contains(t, p.does(t, "verify", "--trust", p.pub, "--images"), "no problems found")
			// All of it is of today, which prune leaves.
			out, _, code := p.run(t, "prune", "stage", "--keep", "2", "--key", p.key)
			assert.Equal(t, 3, code, out)
			p.does(t, "refresh", "stage", "--expires", "30d", "--key", p.key)
			assert.Equal(t, asked, p.inspect(t, "stage", "velum").tags())
			assert.Contains(t, p.does(t, "verify", "--trust", p.pub, "--images"), "no problems found")
		})
	}
}

// killedAt kills a publisher when its n-th request arrives, and reports whether its op was stored before.
func (p *publishers) killedAt(t *testing.T, n int, args ...string) (hasOp, isKilled bool) {
	t.Helper()
	cmd := p.command(t, args...)
	var lock sync.Mutex
	count, putsOp := 0, false
	started := make(chan struct{})
	p.registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		<-started
		lock.Lock()
		defer lock.Unlock()
		if count++; count < n {
			putsOp = putsOp || r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/op-")
			return false
		}
		if count == n {
			hasOp = putsOp
			assert.NoError(t, cmd.Process.Kill())
		}
		return true
	})
	defer p.registry.Intercept(nil)
	require.NoError(t, cmd.Start())
	close(started)
	err := cmd.Wait()
	lock.Lock()
	defer lock.Unlock()
	return hasOp || count < n, err != nil
}

// A registry that fails every fifth request delays publishers, and no more: each request is repeated by itself.
func TestPublisherOnAFailingRegistry(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	p.registry.Push("velum", node.Image{}, "4.0.0-rev1-build1.1")
	var lock sync.Mutex
	count := 0
	p.registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		lock.Lock()
		defer lock.Unlock()
		if count++; count%5 != 0 {
			return false
		}
		http.Error(w, `{"errors":[{"code":"UNKNOWN"}]}`, http.StatusInternalServerError)
		return true
	})
	p.does(t, "init", "stage", "--key", p.key)
	p.does(t, "add", "stage", p.registry.Ref("velum:4.0.0-rev1-build1.1"), "--key", p.key)
	p.registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusServiceUnavailable)
		return true
	})
	_, errs, code := p.run(t, "inspect", "stage")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "503")
	p.registry.Intercept(nil)
	assert.Contains(t, p.does(t, "verify", "--trust", p.pub), "no problems found")
}

// Logins come from docker's and podman's files, and from credential helpers.
func TestPublisherLogsIn(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	host := p.registry.Host
	p.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if user, secret, ok := r.BasicAuth(); ok && user == "ci" && secret == "s3cret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="catalogs"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return true
	})
	_, errs, code := p.run(t, "init", "stage", "--unsigned")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "hint: log in with `docker login` or `podman login`")
	helpers, auth := t.TempDir(), "Y2k6czNjcmV0" // ci:s3cret
	agenttest.WriteProgram(t, filepath.Join(helpers, "docker-credential-test"),
		"#!/bin/sh\ncat >/dev/null\necho '{\"Username\":\"ci\",\"Secret\":\"s3cret\"}'\n")
	for channel, file := range map[string]struct{ variable, name, text string }{
		"docker": {"DOCKER_CONFIG", "config.json", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, auth)},
		"podman": {"REGISTRY_AUTH_FILE", "auth.json", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, auth)},
		"helper": {"DOCKER_CONFIG", "config.json", fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, host)},
		"store":  {"DOCKER_CONFIG", "config.json", `{"credsStore":"test"}`},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, file.name), []byte(file.text), 0o600))
		value := dir
		if channel == "podman" {
			value = filepath.Join(dir, file.name)
		}
		with := *p
		with.env = append([]string{"PATH=" + helpers + ":" + os.Getenv("PATH"), file.variable + "=" + value}, p.env[1:]...)
		with.does(t, "init", channel, "--unsigned")
	}
	p.registry.Intercept(nil)
	assert.Contains(t, p.does(t, "verify", "--unsigned"), "4 channels checked")
}
