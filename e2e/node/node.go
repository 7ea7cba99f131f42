// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

const (
	socketPath = "run/containerd/containerd.sock" // containerd's socket, below Root
	// maxSocketPath is the size limit of sockaddr_un (unix(7)), minus the suffix ".ttrpc" of containerd's second
	// socket.
	maxSocketPath = 107 - len(".ttrpc")
)

// Version is a version of containerd.
type Version string

const (
	// NoContainerd is a node with a registry only.
	NoContainerd Version = ""
	// Containerd16 is Debian 12's containerd 1.6: it has no transfer service and no pinned images.
	Containerd16 Version = "1.6"
	// Containerd17 is containerd 1.7 of another Debian, unpacked by tools/setup: it has pinned images.
	Containerd17 Version = "1.7"
	// Containerd2 is the newest containerd 2.x, built by tools/setup.
	Containerd2 Version = "2"
)

// Containerds are the versions on which each story runs: the newest, and in `make soak` all.
func Containerds() []Version {
	if Soak {
		return []Version{Containerd17, Containerd16, Containerd2}
	}
	return []Version{Containerd2}
}

// Options describe the node's components besides its registry.
type Options struct {
	Containerd Version
	Kubelet    bool // needs a containerd
	TLS        bool // the registry uses HTTPS, with a certificate of a CA that certs.d names
	Registry   RegistryProgram
	// Manifests is kubelet's static pod path, below Root; empty: etc/kubernetes/manifests.
	Manifests string
	// KubeletConfig overrides fields of the KubeletConfiguration (kubelet.config.k8s.io/v1beta1).
	KubeletConfig map[string]any
	// Kubeconfig leads kubelet to an API server. Its read-only port is closed then. Empty: kubelet runs alone.
	Kubeconfig string
	// Snapshotter is CRI's snapshotter; empty: containerd's default, overlayfs.
	Snapshotter string
	// ConfigPath is containerd's config_path: directories below Root, or absolute ones of a host; nil:
	// etc/containerd/certs.d.
	ConfigPath []string
	// ImageSettings are lines of TOML for CRI's image plugin.
	ImageSettings string
	// ImageSpace gives containerd's root its own file system of this size in bytes; 0: it is in Dir.
	ImageSpace int64
}

// Node is a running node. Its methods may be called from any goroutine that may call Fatalf.
type Node struct {
	Dir        string // the directory of all files of the node
	Root       string // the tree for the agent's --root
	Manifests  string // kubelet's static pod path
	Registry   *Registry
	Containerd *Containerd // nil: none
	Kubelet    *Kubelet    // nil: none

	tb     TB
	keeper *keeper.Keeper
	answer string // path of the program in all images

	lock       sync.Mutex
	registries int
	processes  []*Process
	ports      []func() // releases of FreePort
}

// Start starts a node, which ends in tb's cleanup. It first removes the remains of killed runs.
func Start(tb TB, options Options) *Node {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatalf("node: needs root: containerd mounts images and makes cgroups; run it with sudo")
	}
	if swept, err := keeper.Sweep(); err != nil {
		tb.Fatalf("node: sweep: %v", err)
	} else if len(swept) > 0 {
		tb.Logf("node: removed what killed runs left: %q", swept)
	}
	n := &Node{tb: tb}
	k, err := keeper.Start(n.buildTool("keeper"))
	if err != nil {
		tb.Fatalf("node: %v", err)
	}
	n.keeper, n.Dir = k, k.Dir
	tb.Cleanup(n.end)
	manifests := cmp.Or(options.Manifests, "etc/kubernetes/manifests")
	n.makeTree(manifests)
	n.WriteFile(vendorConfig, vendorText+"podManifests: /"+manifests+"\n")
	if socket := n.Path(socketPath); len(socket) > maxSocketPath {
		tb.Fatalf("node: %s: too long for a unix socket: set TMPDIR to a shorter directory", socket)
	}
	n.answer = n.buildTool("answer")
	n.Registry = n.StartRegistryWith(RegistryOptions{Program: options.Registry, TLS: options.TLS})
	if options.Containerd != NoContainerd {
		n.Containerd = n.startContainerd(options)
	}
	if options.Kubelet {
		n.Kubelet = n.startKubelet(options)
	}
	return n
}

// end logs the output of a failed test's programs, and ends the node.
func (n *Node) end() {
	n.tb.Helper()
	if n.tb.Failed() {
		n.logTails()
	}
	if err := n.keeper.Close(); err != nil {
		n.tb.Errorf("node: end: %v", err)
	}
	for _, release := range n.ports {
		release()
	}
}

// vendorConfig is the package's own configuration fragment; settings that a test writes in /etc override it.
const vendorConfig = "usr/share/image-update-agent/config.yaml"

// vendorText has settings that a test node needs: the default wait before a confirming poll and before an update counts
// as proved would cost each test half a minute, and the test machine's disk may be fuller than a node's should be. No
// systemd says which flags its kubelet has, so it also names the directory of pod manifests.
const vendorText = "confirmAfter: 0\nsettle: 1s\ndisk: {reserve: 1MiB, reservePercent: 0, highMark: 100}\n"

// makeTree makes the directories that a node has before the agent is installed.
func (n *Node) makeTree(manifests string) {
	n.tb.Helper()
	n.Root = filepath.Join(n.Dir, "root")
	n.Manifests = n.Path(manifests)
	for _, dir := range []string{
		manifests, "etc/salt", "etc/containerd/certs.d", "etc/image-update-agent/config.d",
		"usr/share/caasp-container-manifests/manifests", "usr/share/image-update-agent",
		"run/containerd", "var/lib", "var/log",
	} {
		if err := os.MkdirAll(n.Path(dir), 0o755); err != nil {
			n.tb.Fatalf("node: %v", err)
		}
	}
}

// Path returns the path below Root for a path on a real node ("etc/salt/grains").
func (n *Node) Path(name string) string { return filepath.Join(n.Root, name) }

// WriteFile writes a file below Root atomically, with a temporary dot file, which kubelet ignores.
func (n *Node) WriteFile(name, text string) {
	n.tb.Helper()
	path := n.Path(name)
	next := filepath.Join(filepath.Dir(path), ".next-"+filepath.Base(path))
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(next, []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
}

// ReadFile reads a file below Root.
func (n *Node) ReadFile(name string) string {
	n.tb.Helper()
	text, err := os.ReadFile(n.Path(name))
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	return string(text)
}
