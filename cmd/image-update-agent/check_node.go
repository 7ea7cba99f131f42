// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/images"
	"github.com/kubic-project/image-update-agent/internal/pods"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// checkNode looks at the node as a cycle would, sources included.
func (a *app) checkNode(ctx context.Context, s settings) []finding {
	dirs := hosts.Dirs(ctx, s.Containerd.CertsD)
	clocks := new(dates)
	a.onWire = clocks.wrap
	w, err := a.wire(ctx, s, quietLog())
	if err != nil {
		return []finding{fail("wiring", err, "correct the setting named")}
	}
	defer w.close()
	findings, running := s.checkContainerd(ctx, dirs)
	if running {
		findings = append(findings, checkPods(ctx, w)...)
	}
	return append(findings, clocks.check(time.Now(), builtAt()))
}

// checkContainerd looks at containerd, CRI, and what they are set up for. It is
// false where a cycle would get no further.
func (s settings) checkContainerd(ctx context.Context, dirs []hosts.Dir) ([]finding, bool) {
	server, serverErr := s.server(ctx)
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return []finding{fail("cri", err, "correct cri.socket")}, false
	}
	space, criErr := runtime.Filesystem(ctx)
	findings := []finding{
		verdictOf("containerd", fmt.Sprintf("%s, %s", s.Containerd.Socket, server.Version), serverErr,
			"start containerd (systemctl start containerd), or set containerd.socket"),
		verdictOf("cri", s.CRI.Socket, criErr,
			"enable containerd's CRI plugin, or set cri.socket"),
	}
	findings = append(findings, checkHosts(dirs, server.Version)...)
	if serverErr != nil || criErr != nil {
		return findings, false
	}
	name, err := runtime.Snapshotter(ctx)
	used := snapshotters{s.Containerd.Snapshotter, name, err, server}
	findings = append(findings, checkImageSpace(space, s.Disk), used.check())
	_, loaded := server.Snapshotters[used.inUse()]
	return append(findings, s.checkProcess(ctx, server, cmp.Or(used.cri, used.inUse()), dirs)...), loaded
}

// server asks containerd what it is.
func (s settings) server(ctx context.Context) (images.Server, error) {
	store, err := images.New(images.Options{
		Socket: s.Containerd.Socket, Namespace: s.Containerd.Namespace, Resolver: registry.New(registry.Options{}).Resolver(),
	})
	if err != nil {
		return images.Server{}, err
	}
	return store.Server(ctx)
}

// checkProcess looks at what containerd was started with.
func (s settings) checkProcess(
	ctx context.Context, server images.Server, snapshotter string, dirs []hosts.Dir,
) []finding {
	findings := []finding{checkParallel(server, snapshotter, config.Unpacks(s.below()))}
	containerd, err := peerOf(ctx, s.Containerd.Socket)
	if err != nil {
		return append(findings, ok("decompression", fmt.Sprintf("not known: %v", err)))
	}
	findings = append(findings, containerd.checkDecompression(server.Version))
	path, changed, found := bundle(s.root)
	if !found {
		return findings // plain http, or a ca in each hosts.toml; else the registries' own findings tell
	}
	var running *peer
	if daemon, err := peerOf(ctx, s.socket("agent.sock")); err == nil { // the status socket may be systemd's
		running = &daemon
	}
	return append(findings, checkTrust(path, changed, containerd, running, dirs)...)
}

// below is the root as a prefix of absolute paths.
func (s settings) below() string {
	if s.root == "/" {
		return ""
	}
	return s.root
}

func (p peer) checkDecompression(version string) finding {
	environment, err := p.environment()
	if err != nil {
		return ok("decompression", fmt.Sprintf("not known: %v", err))
	}
	return checkDecompression(version, environment, func(program string) string {
		return p.lookPath(environment["PATH"], program)
	})
}
