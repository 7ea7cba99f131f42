// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// etcds are the parts of tools/setup with an etcd of each series.
var etcds = []string{"etcd", "etcd35", "etcd36"}

// etcdForm is a way to set the URLs at which a member serves its clients.
type etcdForm struct {
	flags []string
	env   map[string]string
	file  map[string]any // configuration file; if set, etcd ignores flags and variables
}

// asEach returns the settings as flags, as variables, and as a file.
func asEach(settings map[string]string) []etcdForm {
	flags, env, file := etcdForm{}, etcdForm{env: map[string]string{}}, etcdForm{file: map[string]any{}}
	security := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := settings[name]
		flags.flags = append(flags.flags, "--"+name+"="+value)
		env.env["ETCD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = value
		if strings.HasSuffix(name, "-file") {
			security[name] = value
		} else if name == "log-outputs" {
			file.file[name] = []string{value}
		} else {
			file.file[name] = value
		}
	}
	if len(security) > 0 {
		file.file["client-transport-security"] = security
	}
	return []etcdForm{flags, env, file}
}

// mixed returns each setting as a flag, sometimes after another flag of the same name, or as a variable.
func mixed(r *rand.Rand, settings map[string]string) etcdForm {
	form := etcdForm{env: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value, dashes := settings[name], oneOf(r, "-", "--")
		switch r.IntN(4) {
		case 0:
			form.flags = append(form.flags, dashes+name+"="+value)
		case 1:
			form.flags = append(form.flags, dashes+name, value)
		case 2:
			earlier := map[bool]string{true: "http://127.0.0.9:1", false: "earlier"}[strings.HasSuffix(name, "-urls")]
			if name == "initial-cluster" || name == "log-outputs" {
				earlier = value
			}
			form.flags = append([]string{dashes + name + "=" + earlier}, append(form.flags, dashes+name+"="+value)...)
		default:
			form.env["ETCD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = value
		}
	}
	return form
}

// pod returns the pod manifest of a member.
func (f etcdForm) pod(t *testing.T, root string) string {
	t.Helper()
	args := f.flags
	if f.file != nil {
		data, err := json.Marshal(f.file)
		require.NoError(t, err)
		registrytest.Put(t, root, "/etc/etcd.yaml", string(data))
		args = []string{"--config-file=" + filepath.Join(root, "etc/etcd.yaml")}
	}
	text, err := json.Marshal(append([]string{"etcd"}, args...))
	require.NoError(t, err)
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  containers:\n  - name: etcd\n    command: " + string(text) + "\n    env:\n"
	for name, value := range f.env {
		pod += fmt.Sprintf("    - {name: %s, value: %q}\n", name, value)
	}
	return pod
}

// member is an etcd process that starts.
type member struct{ lines *bufio.Scanner }

func (f etcdForm) start(t *testing.T, program, root string) member {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	args := f.flags
	if f.file != nil {
		args = []string{"--config-file=" + filepath.Join(root, "etc/etcd.yaml")}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Dir = root
	for name, value := range f.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	t.Cleanup(func() {
		end()
		_ = cmd.Wait()
		_, _ = io.Copy(io.Discard, read)
		_ = read.Close()
	})
	lines := bufio.NewScanner(read)
	lines.Buffer(nil, 1<<20)
	return member{lines}
}

// etcdListens are the URLs of a member.
type etcdListens struct {
	Listen    []string `json:"listen-client-urls"`
	Advertise []string `json:"advertise-client-urls"`
}

// says returns the member's log line with this message; it fails if the member ends before.
func (m member) says(t *testing.T, message string) (line etcdListens) {
	t.Helper()
	var all []string
	for m.lines.Scan() {
		all = append(all, m.lines.Text())
		if strings.Contains(m.lines.Text(), `"msg":"`+message) {
			_ = json.Unmarshal(m.lines.Bytes(), &line)
			return line
		}
	}
	require.Fail(t, "it ended", strings.Join(all, "\n"))
	return line
}

// etcdBase returns the settings that a member needs besides the URLs of its clients.
func etcdBase(t *testing.T, root, part string) map[string]string {
	t.Helper()
	peer := "http://" + freeAddress(t)
	base := map[string]string{
		"data-dir": filepath.Join(root, "data"), "listen-peer-urls": peer, "initial-advertise-peer-urls": peer,
		"initial-cluster": "m=" + peer, "name": "m", "log-outputs": "stderr",
	}
	if part == "etcd" {
		base["logger"] = "zap"
	}
	return base
}

func etcdProgram(t *testing.T, part string) string {
	t.Helper()
	return filepath.Join(story.Shell(t, story.Checkout(t), "tools/setup where "+part), "etcd")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return story.Address(rig.FreePort(t))
}

// TestMembersOfEachEtcdAreFound starts members of the oldest series, and of each in `make neighbours`, with client URLs and certificates from flags, variables,
// both, or a file. The agent finds each where its log says that it serves, and finds it healthy.
func TestMembersOfEachEtcdAreFound(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	parts := etcds[:1]
	if isLive() {
		parts = etcds
	}
	for _, part := range parts {
		program := etcdProgram(t, part)
		for title, urls := range map[string]string{
			"http": "http://A", "https": "https://A", "two": "http://A,http://B", "unix": "unix://localhost:1,http://A", "both": "https://A,http://B",
		} {
			for n := range 4 {
				t.Run(fmt.Sprint(part, title, n), func(t *testing.T) {
					t.Parallel()
					root := t.TempDir()
					settings := etcdBase(t, root, part)
					settings["listen-client-urls"] = strings.NewReplacer("A", freeAddress(t), "B", freeAddress(t)).Replace(urls)
					settings["advertise-client-urls"] = strings.Split(strings.ReplaceAll(settings["listen-client-urls"], "unix://localhost:1,", ""), ",")[0]
					if strings.Contains(urls, "https") {
						settings["cert-file"], settings["key-file"], settings["trusted-ca-file"] = cert, key, ca
					}
					form := mixed(rand.New(rand.NewPCG(uint64(n), 1)), settings)
					if n < 3 {
						form = asEach(settings)[n]
					}
					pod := form.pod(t, root)
					m := form.start(t, program, root)
					said := m.says(t, "starting an etcd server")
					m.says(t, "serving client traffic")
					var mu sync.Mutex
					asked := map[string]bool{}
					want := []fleet.Part{{Name: "etcd member m", Local: true, Healthy: true}}
					rig.Eventually(t, "it is healthy", story.Ready, func() error { // on a busy machine later than in time
						seen := quorum.Control{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
							mu.Lock()
							asked[address] = true
							mu.Unlock()
							return (&net.Dialer{}).DialContext(ctx, network, address)
						}}.Observe(t.Context(), []node.PodFile{{Name: "etcd.yaml", Data: []byte(pod)}})
						if seen.Err == nil && slices.Equal(want, seen.Members) {
							return nil
						}
						return errors.Join(seen.Err, fmt.Errorf("%+v: %s", seen.Members, pod))
					})
					for _, url := range said.Listen {
						scheme, host, _ := strings.Cut(url, "://")
						assert.Equal(t, scheme != "unix", asked[host], "%s: %v", url, asked)
					}
				})
			}
		}
	}
}

// TestEachEtcdListensWhereItIsAsked starts each series with generated flags, variables and files: it listens wherever
// the agent asks it. The agent also asks at the URLs that it advertises.
func TestEachEtcdListensWhereItIsAsked(t *testing.T) {
	t.Parallel()
	for _, part := range etcds {
		etcd := newJudge(t, "listens-"+part, story.Shell(t, story.Checkout(t), "tools/setup version "+part))
		count, r := inputs(t, 60)
		for n := range count {
			t.Run(fmt.Sprint(part, n), func(t *testing.T) {
				root := t.TempDir()
				settings := etcdBase(t, root, part)
				settings["listen-client-urls"] = oneOf(r, "http://A", "http://A,http://B", "http://0.0.0.0:P", "http://A,unix://localhost:1", "http://A, http://B", "http://[::1]:P,http://B")
				settings["advertise-client-urls"] = oneOf(r, "http://A", "http://B", "http://A,http://B", "http://127.0.0.5:7", "http://etcd.invalid:2379,http://A")
				free := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
				slices.Sort(free) // etcd sorts its URLs
				peer := strings.TrimPrefix(settings["listen-peer-urls"], "http://")
				a, b, p := free[0], free[1], strings.TrimPrefix(free[2], "127.0.0.1")
				fill := strings.NewReplacer("A", a, "B", b, ":P", p)
				for name := range settings {
					if strings.HasSuffix(name, "client-urls") {
						settings[name] = fill.Replace(settings[name])
					}
				}
				form := mixed(r, settings)
				if r.IntN(3) == 0 {
					form = asEach(settings)[r.IntN(3)]
				}
				pod := form.pod(t, root)
				etcd.live = func([]byte) []byte {
					return inJSON(t, form.start(t, etcdProgram(t, part), root).says(t, "starting an etcd server"))
				}
				var said etcdListens
				etcd.ask(map[string]any{"flags": form.flags, "env": form.env, "file": form.file}, &said,
					input{hides: []string{root, "root", peer, "peer", a, "A", b, "B", p, ":P"}})
				var mu sync.Mutex
				var asked, want []string
				seen := quorum.Control{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, address)
					return nil, syscall.ECONNREFUSED
				}}.Observe(t.Context(), []node.PodFile{{Name: "etcd.yaml", Data: []byte(pod)}})
				require.Error(t, seen.Err)
				for _, url := range append(said.Listen, said.Advertise...) {
					if host, is := strings.CutPrefix(url, "http://"); is {
						want = append(want, host)
					}
				}
				assert.Equal(t, sorted(want), sorted(asked), pod)
			})
		}
	}
}
