// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

const (
	socketPath = "run/containerd/containerd.sock" // of containerd, below Root
	// maxSocketPath is what sockaddr_un takes (unix(7)), less containerd's ".ttrpc" beside its socket.
	maxSocketPath = 107 - len(".ttrpc")
)

// Version names a containerd.
type Version string

const (
	// NoContainerd leaves the node with a registry only.
	NoContainerd Version = ""
	// Containerd16 is Debian 12's containerd 1.6: no Transfer service, no pinned images.
	Containerd16 Version = "1.6"
	// Containerd17 is containerd 1.7 of another Debian, unpacked by tools/setup: it knows pinned images.
	Containerd17 Version = "1.7"
	// Containerd2 is the newest containerd 2.x, built by tools/setup.
	Containerd2 Version = "2"
)

// Options say what the node consists of beside its registry.
type Options struct {
	Containerd Version
	Kubelet    bool // needs a containerd
	TLS        bool // the registry speaks https, with a certificate of a CA that certs.d names
	// KubeletConfig overrides fields of the KubeletConfiguration (kubelet.config.k8s.io/v1beta1).
	KubeletConfig map[string]any
	// Snapshotter is the one that CRI unpacks with; empty: containerd's default, overlayfs.
	Snapshotter string
	// ConfigPath are the directories below Root in containerd's config_path; nil: etc/containerd/certs.d.
	ConfigPath []string
	// ImageSettings are lines of TOML for the plugin by which CRI pulls.
	ImageSettings string
	// ImageSpace gives containerd's root a file system of its own of so many bytes; 0: it lies in Dir.
	ImageSpace int64
}

// Node is a running node. Its methods may be called from any goroutine that may call Fatalf.
type Node struct {
	Dir        string // everything of the node is below
	Root       string // the tree for the agent's --root
	Manifests  string // kubelet's static pod path: Root/etc/kubernetes/manifests
	Registry   *Registry
	Containerd *Containerd // nil without
	Kubelet    *Kubelet    // nil without

	tb     TB
	keeper *keeper.Keeper
	answer *program // of the images

	lock       sync.Mutex
	registries int
	processes  []*Process
}

// Start starts a node and ends it in tb's cleanup. It first removes what killed runs left behind.
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
	n := &Node{tb: tb, answer: &program{layers: map[bool]v1.Layer{}}}
	k, err := keeper.Start(n.buildTool("keeper"))
	if err != nil {
		tb.Fatalf("node: %v", err)
	}
	n.keeper, n.Dir = k, k.Dir
	tb.Cleanup(n.end)
	n.makeTree()
	n.WriteFile(vendorConfig, vendorText)
	if socket := n.Path(socketPath); len(socket) > maxSocketPath {
		tb.Fatalf("node: %s: too long for a unix socket: set TMPDIR to a shorter directory", socket)
	}
	n.answer.path = n.buildTool("answer")
	n.Registry = n.StartRegistry(options.TLS)
	if options.Containerd != NoContainerd {
		n.Containerd = n.startContainerd(options)
	}
	if options.Kubelet {
		n.Kubelet = n.startKubelet(options)
	}
	return n
}

// end shows the logs of a test that failed, and ends the node.
func (n *Node) end() {
	n.tb.Helper()
	if n.tb.Failed() {
		n.logTails()
	}
	if err := n.keeper.Close(); err != nil {
		n.tb.Errorf("node: end: %v", err)
	}
	n.answer.forget()
}

// vendorConfig is the package's own fragment; what a story writes below /etc wins over it.
const vendorConfig = "usr/share/image-update-agent/config.yaml"

// vendorText has what a node of a test needs: a second reading and a long proof would cost each story half a minute,
// and the machine that the tests run on may be fuller than a node ought to be.
const vendorText = "confirmAfter: 0\nsettle: 1s\ndisk: {reserve: 1MiB, reservePercent: 0, highMark: 100}\n"

// makeTree makes the directories that a node has before the agent is installed.
func (n *Node) makeTree() {
	n.tb.Helper()
	n.Root = filepath.Join(n.Dir, "root")
	n.Manifests = n.Path("etc/kubernetes/manifests")
	for _, dir := range []string{
		"etc/kubernetes/manifests", "etc/salt", "etc/containerd/certs.d", "etc/image-update-agent/config.d",
		"usr/share/caasp-container-manifests/manifests", "usr/share/image-update-agent",
		"run/containerd", "var/lib", "var/log",
	} {
		if err := os.MkdirAll(n.Path(dir), 0o755); err != nil {
			n.tb.Fatalf("node: %v", err)
		}
	}
}

// Path returns the place below Root of a path on a real node ("etc/salt/grains").
func (n *Node) Path(name string) string { return filepath.Join(n.Root, name) }

// WriteFile writes a file below Root in one step, by way of a dot name, which kubelet ignores.
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
