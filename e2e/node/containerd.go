// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
)

// Settings that differ from containerd's defaults, apart from paths:
//   - restrict_oom_score_adj: a machine may lack CAP_SYS_RESOURCE, and runc then fails on CRI's -998
//   - disabled: plugins that need kernel modules or a collector, and NRI, whose socket is outside of the node's
//     directory
//
// config1 is for containerd 1, config2 for containerd 2. In both, %[1]s is the node's directory, %[2]s its tree, %[3]s
// the sandbox image, %[4]s config_path, and %[5]s settings of CRI's image plugin.
const (
	config1 = `version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "%[2]s/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  %[5]s
  restrict_oom_score_adj = true
  sandbox_image = "%[3]s"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/containerd/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "%[4]s"
`
	config2 = `version = 3
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
imports = []
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
]
[grpc]
  address = "%[2]s/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  %[5]s
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "%[3]s"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "%[4]s"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "%[1]s/containerd/cni"
[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = "%[1]s/containerd/verifiers"
`
)

// Settings for CRI's snapshotter %[1]q. containerd 2 pulls by its transfer service, which needs the same setting: else
// CRI cannot pull at all ("no unpack platforms defined").
const (
	snapshotter1 = `[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = %[1]q
`
	snapshotter2 = `[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = %[1]q
  differ = "walking"
`
)

// Containerd is the node's containerd, with CRI.
type Containerd struct {
	Version Version
	Socket  string // Root/run/containerd/containerd.sock
	*Process

	node *Node
	bin  string // directory of the programs containerd and its shim
	file string // path of the configuration
}

func (n *Node) startContainerd(options Options) *Containerd {
	n.tb.Helper()
	c := &Containerd{
		Version: options.Containerd, Socket: n.Path(socketPath),
		node: n, file: filepath.Join(n.Dir, "containerd/config.toml"),
	}
	config, snapshotter := config2, snapshotter2
	switch options.Containerd {
	case Containerd16:
		c.bin, config, snapshotter = filepath.Dir(n.installed("containerd")), config1, snapshotter1
	case Containerd17:
		c.bin, config, snapshotter = n.Part("containerd17"), config1, snapshotter1
	case Containerd2:
		c.bin = n.Part("containerd")
	default:
		n.tb.Fatalf("node: containerd %q: not a version of this package", options.Containerd)
	}
	settings := options.ImageSettings
	if options.Snapshotter != "" {
		config += fmt.Sprintf(snapshotter, options.Snapshotter)
		if options.Containerd == Containerd2 {
			settings += fmt.Sprintf("snapshotter = %q\n", options.Snapshotter)
		}
	}
	pause := n.Registry.Ref("pause:1")
	n.Registry.Push("pause", Image{Answer: "pause"}, "1")
	text := fmt.Appendf(nil, config, n.Dir, n.Root, pause, n.configPath(options), settings)
	if err := errors.Join(os.MkdirAll(filepath.Join(n.Dir, "containerd/root"), 0o711),
		os.WriteFile(c.file, text, 0o644)); err != nil {
		n.tb.Fatalf("node: containerd: %v", err)
	}
	if options.ImageSpace > 0 {
		n.mountImageSpace(options.ImageSpace)
	}
	c.Start()
	return c
}

// configPath returns the value of containerd's config_path.
func (n *Node) configPath(options Options) string {
	if options.ConfigPath == nil {
		return n.Path(certsD)
	}
	var dirs []string
	for _, dir := range options.ConfigPath {
		if !filepath.IsAbs(dir) {
			dir = n.Path(dir)
		}
		dirs = append(dirs, dir)
	}
	return strings.Join(dirs, ":")
}

// Start starts containerd after Stop or Kill, and returns when it serves CRI. Containers keep running in between, as on
// a real node.
func (c *Containerd) Start() { c.node.tb.Helper(); c.start() }

// StartIn is Start in a network namespace, given by its file.
func (c *Containerd) StartIn(network string) {
	c.node.tb.Helper()
	c.start(c.node.installed("nsenter"), "--net="+network)
}

func (c *Containerd) start(in ...string) {
	c.node.tb.Helper()
	argv := append(in, filepath.Join(c.bin, "containerd"), "-c", c.file)
	c.Process = c.node.run("containerd", []string{searchPath(c.bin)}, argv...)
	cri := c.node.CRI()
	c.waitReady(func() error { return cri.ready(c.node.tb.Context()) })
}

// Restart stops and starts it.
func (c *Containerd) Restart() {
	c.node.tb.Helper()
	c.Stop()
	c.Start()
}

// Client returns a client of containerd's own API in CRI's namespace.
func (c *Containerd) Client() *containerd.Client {
	c.node.tb.Helper()
	client, err := containerd.New(c.Socket, containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		c.node.tb.Fatalf("node: containerd: %v", err)
		return nil
	}
	c.node.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// ContainerdProgram returns the path of a containerd program.
func (n *Node) ContainerdProgram(version Version) string {
	n.tb.Helper()
	switch version {
	case Containerd16:
		return n.installed("containerd")
	case Containerd17:
		return filepath.Join(n.Part("containerd17"), "containerd")
	default:
		return filepath.Join(n.Part("containerd"), "containerd")
	}
}
