// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/api"
)

const (
	manifestDir = "etc/kubernetes/manifests/"
	templateDir = "usr/share/caasp-container-manifests/manifests/"
	waitingDir  = "var/lib/image-update-agent/rendered/"
	configFile  = "etc/image-update-agent/config.yaml"
)

// view is all of a node that must stay as it is where something is wrong: the
// files below Root, and containerd's image records. What the agent keeps for
// itself (record, status, lock, sockets, pins) is left out, but not the pod
// manifests that wait for approval.
type view struct {
	files  map[string]file
	images map[string]string // name to digest
	leases []string
}

// file is what tells whether somebody touched a file.
type file struct {
	Mode     fs.FileMode
	Inode    uint64
	UID      uint32
	Modified time.Time
	Content  string // bytes, or a link's target
}

// look takes a view, without the files that begin with one of except.
func look(t *testing.T, n *node.Node, except ...string) view {
	t.Helper()
	v := view{files: map[string]file{}}
	for _, dir := range []string{"etc", "usr", waitingDir} {
		err := filepath.WalkDir(n.Path(dir), func(path string, _ fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, n.Root+"/")
			for _, prefix := range except {
				if strings.HasPrefix(name+"/", prefix) || name == prefix {
					return nil
				}
			}
			if err == nil {
				v.files[name], err = inspect(path)
			}
			return err
		})
		if dir != waitingDir || !os.IsNotExist(err) {
			require.NoError(t, err)
		}
	}
	if n.Containerd != nil {
		v.images, v.leases = stored(t, n)
	}
	return v
}

func inspect(path string) (file, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return file{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	f := file{Mode: info.Mode(), Inode: stat.Ino, UID: stat.Uid}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		f.Content, err = os.Readlink(path)
	case info.Mode().IsRegular():
		var data []byte
		data, err = os.ReadFile(path)
		f.Content = string(data)
	}
	if !info.IsDir() { // a directory's changes with the temporary files that come and go
		f.Modified = info.ModTime()
	}
	return f, err
}

// stored are containerd's image records and leases, as it has them on its disk.
func stored(t *testing.T, n *node.Node) (images map[string]string, leases []string) {
	t.Helper()
	client, err := containerd.New(n.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	list, err := client.ImageService().List(t.Context())
	require.NoError(t, err)
	images = map[string]string{}
	for _, image := range list {
		if strings.HasPrefix(image.Name, pinHost) {
			continue
		}
		images[image.Name] = fmt.Sprint(image.Target.Digest, image.Labels)
	}
	held, err := client.LeasesService().List(t.Context())
	require.NoError(t, err)
	for _, lease := range held {
		leases = append(leases, lease.ID)
	}
	return images, leases
}

// unchanged asserts that the node looks as before.
func (v view) unchanged(t *testing.T, n *node.Node, except ...string) {
	t.Helper()
	now := look(t, n, except...)
	assert.Equal(t, v.files, now.files)
	assert.Equal(t, v.images, now.images)
	assert.Equal(t, v.leases, now.leases, "leases")
}

// rel is a long tag of an image with one small layer of its own.
func rel(n *node.Node, repository, long string) string {
	var seed uint64
	for _, c := range []byte(repository + long) {
		seed = seed*31 + uint64(c)
	}
	return n.Registry.Publish(repository, long, node.Image{Layers: []node.Layer{{Seed: seed, Size: 100 << 10}}})
}

// podYAML is a small pod manifest.
func podYAML(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: kube-system\nspec:\n" +
		"  containers:\n  - name: " + name + "\n    image: " + image + "\n"
}

// podOf is a pod manifest's part of the status.
func podOf(t *testing.T, s status.Status, file string) status.PodStatus {
	t.Helper()
	for _, p := range s.PodManifests {
		if p.PodManifest == file {
			return p
		}
	}
	require.FailNow(t, "not in the status", "%s: %+v", file, s.PodManifests)
	return status.PodStatus{}
}

// imageOf is the status of the only image of a pod manifest.
func imageOf(t *testing.T, s status.Status, file string) status.ImageStatus {
	t.Helper()
	var found []status.ImageStatus
	for _, i := range s.Images {
		if i.PodManifest == file {
			found = append(found, i)
		}
	}
	require.Len(t, found, 1, "%s: %+v", file, s.Images)
	return found[0]
}

// cycle runs a single cycle that must end with the code.
func cycle(t *testing.T, n *node.Node, code int) status.Status {
	t.Helper()
	r := n.Agent("run", "--once", "--output", "json")
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	return parsed(t, r)
}

// startDaemonWith starts the daemon and waits until it listens and has looked at
// the node once, or is at long work: its first look writes files of its own,
// which must not fall into a test's view.
func startDaemonWith(t *testing.T, n *node.Node, env ...string) *node.Process {
	t.Helper()
	socket := n.Path("run/image-update-agent/agent.sock")
	require.NoError(t, os.RemoveAll(socket)) // a killed one leaves it
	p := n.StartAgentWith(env, "run")
	node.Eventually(t, "daemon", ready, func() error {
		s, err := api.NewClient(socket).Status(t.Context())
		if err == nil && s.HasReason(status.KindStarting) && s.Progress == nil {
			err = errors.New("has not looked yet")
		}
		return err
	})
	return p
}

// hang has the registry not answer requests of a kind, and tells of the first.
func hang(n *node.Node, kind node.Kind) (asked <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	wait := node.Hang(kind)
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/"+string(kind)) {
			once.Do(func() { close(first) })
		}
		return wait(w, r)
	})
	return first
}

// hangLayers has the registry not answer requests for blobs but the first, an
// image's configuration, and tells of the first that hangs.
func hangLayers(n *node.Node) (asked <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	var count atomic.Int32
	wait := node.Hang(node.Blob)
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || count.Add(1) == 1 {
			return false
		}
		once.Do(func() { close(first) })
		return wait(w, r)
	})
	return first
}

// output is what a program of the node has written.
func output(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// podPlan is a pod manifest's part of `plan --output json`.
type podPlan struct {
	PodManifest string
	Change      string
	Images      []struct {
		From, To, Change, Error string
		Notes                   []string
		Refused                 []policy.Refusal
	}
	Error string
}

// planned is the plan by pod manifest.
func planned(t *testing.T, n *node.Node) map[string]podPlan {
	t.Helper()
	r := n.Agent("plan", "--output", "json")
	require.Equal(t, 0, r.Code, r.Stderr)
	var plan struct{ PodManifests []podPlan }
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &plan))
	pods := map[string]podPlan{}
	for _, p := range plan.PodManifests {
		pods[p.PodManifest] = p
	}
	return pods
}

// hangup has the daemon read its configuration, and waits until it has.
func hangup(t *testing.T, n *node.Node, daemon *node.Process) {
	t.Helper()
	count := func() int { return strings.Count(output(t, daemon.Stderr), "configuration ") }
	before := count()
	daemon.Signal(syscall.SIGHUP)
	node.Eventually(t, "reload", ready, func() error {
		if count() == before {
			return errors.New("nothing said")
		}
		return nil
	})
}
