// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	containerdlog "github.com/containerd/log"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/catalog/channel"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/face/grains"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubelease"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
	"github.com/kubic-project/image-update-agent/internal/node/readiness"
	"github.com/kubic-project/image-update-agent/internal/node/reboot"
	"github.com/kubic-project/image-update-agent/internal/node/runtimeevents"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/systemd"
)

// wiring is this node as its settings describe it: an agent with its adapters.
type wiring struct {
	settings

	agent    *agent.Agent
	registry *registry.Registry
	layout   *layout.Layout // in the place of the registry; nil: none
	files    *podfiles.Files
	before   registry.Counts // of the wirings that this one follows
}

func (w *wiring) close() {
	w.registry.Close()
	if w.layout != nil {
		_ = w.layout.Close() // it was only read
	}
}

// wire builds an agent from its settings. It asks and pulls from a layout, which the wiring closes; nil: from the
// registries. It connects to nothing yet: what is away now may be there when it is needed.
func (a *app) wire(ctx context.Context, s settings, log *slog.Logger, from *layout.Layout) (*wiring, error) {
	if err := quietContainerd(); err != nil {
		return nil, err
	}
	policy, err := policyOf(ctx, s, log)
	if err != nil {
		return nil, err
	}
	reg := a.registryOf(s, log)
	var releases origin = reg
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return nil, configError{err}
	}
	storage := storageOf(s, runtime, reg, log)
	if from != nil {
		releases, storage.Source = from, from
		policy.Auto = false // an apply would take the layout's word that kubelet can pull
	}
	store, err := images.New(storage)
	if err != nil {
		return nil, configError{err}
	}
	ready, err := readinessOf(s, runtime)
	if err != nil {
		return nil, configError{err}
	}
	events, err := runtimeevents.New(runtimeevents.Options{
		Socket: s.Containerd.Socket, Namespace: s.Containerd.Namespace, Log: log,
	})
	if err != nil {
		return nil, configError{err}
	}
	catalog, err := catalogOf(s, releases, log)
	if err != nil {
		return nil, err
	}
	files := podfiles.New(podfiles.Dirs{Templates: s.Templates, PodManifests: s.PodManifests, Rendered: s.Rendered})
	w := &wiring{settings: s, registry: reg, layout: from, files: files}
	w.agent = &agent.Agent{
		Source: releases, Catalog: catalog, Images: store, Pods: runtime, Files: files,
		Announcer: announcer(s, log), Recorder: recorderOf(s, log), Pacer: reg, Preconditions: s.preconditions(),
		Readiness: ready, Events: events, Inhibitor: systemd.Inhibitor{Bus: systemBus(s.root)},
		Verifier: signature.Releases{
			Verifier: signature.New(signature.Options{Dirs: s.SignatureKeys, Rewrites: policy.Rewrites, Log: log}),
			From:     releases,
		},
		Meter: a.meter, Policy: policy, Log: log, Now: time.Now, Version: version,
		LocalRegistry: registryhost.NewKeeper(s.root, s.StateDir, reg),
	}
	w.agent.LocalRegistry.Memory, w.agent.LocalRegistry.Files = s.memory(), localRegistryFiles{s}
	return w, s.joinFleet(w.agent, log)
}

// quietContainerd quiets containerd's library, which logs through a logger of its own, in another form. Its problems
// come back as errors.
func quietContainerd() error {
	if err := containerdlog.SetLevel("error"); err != nil {
		return fmt.Errorf("containerd's logger: %w", err)
	}
	return nil
}

func readinessOf(s settings, runtime *pods.Runtime) (*readiness.Checker, error) {
	return readiness.New(readiness.Options{
		Pods: s.Kubelet.Pods, Kubeconfig: s.kubeletKubeconfig(), Root: s.root, Version: version,
		UserAgent: "image-update-agent/" + version, Exec: runtime.Exec,
	})
}

// origin has releases, their signatures and catalogs: the registries, or a layout.
type origin interface {
	source.Source
	signature.Fetcher
	channel.Fetcher
}

func recorderOf(s settings, log *slog.Logger) record.Recorder {
	return hook.Recorder{Recorder: state.New(s.StateDir, s.RuntimeDir, log), Announce: s.announce(), Log: log}
}

func (a *app) registryOf(s settings, log *slog.Logger) *registry.Registry {
	return a.registryWith(s, hostsIgnored(s), log)
}

func (a *app) registryWith(s settings, ignored func() (string, error), log *slog.Logger) *registry.Registry {
	running := containerdVersion(s)
	logins := hosts.NewCredentials(hosts.CredentialOptions{
		Root: s.root, Kubelet: s.platform.Logins, File: s.Credentials.File, Getenv: os.Getenv, Log: log,
		Containerd: func(host string) (hosts.Login, error) {
			user, secret, err := config.ContainerdLogin(s.platform, host, running)
			return hosts.Login{User: user, Secret: secret}, err
		},
	})
	return registry.New(registry.Options{
		Options: transport.Options{
			Version: version, Log: log,
			RequestsPerHour: s.RequestsPerHour, ConnectionsPerHost: s.ConnectionsPerHost,
			Credentials: logins.For, TokenServers: s.Credentials.TokenServers,
			Roots: hosts.NewTrust(s.root, os.Getenv, log).Roots,
			Proxy: hosts.NewProxies(s.root, os.Getenv).For,
			Wrap:  a.onWire, IsPatient: func() bool { return !hosts.EndsSilence(running()) },
		},
		CertsDirs: s.Containerd.CertsD, HostsIgnored: ignored, LeastSpeed: s.Staging.LeastSpeed,
	})
}

// askTimeout bounds an answer of containerd about itself.
const askTimeout = 5 * time.Second

// containerdVersion returns the version of the running containerd; empty if it does not answer.
func containerdVersion(s settings) func() string {
	ask := pods.UntilRestart(s.Containerd.Socket, func(ctx context.Context) (images.Server, error) {
		return images.AskServer(ctx, s.Containerd.Socket, s.Containerd.Namespace)
	})
	return func() string {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		server, _ := ask(ctx)
		return server.Version
	}
}

// errNoPath keeps an answer without config_path from being kept: CRI may not have been ready.
var errNoPath = errors.New("no config_path")

// hostsIgnored asks containerd why it follows no hosts.toml, where its configuration leaves that open.
func hostsIgnored(s settings) func() (string, error) {
	if s.certsD.Counts() {
		return nil
	}
	ask := pods.UntilRestart(s.Containerd.Socket, func(ctx context.Context) (images.Server, error) {
		server, err := doctor.AskContainerd(ctx, s.Settings)
		if err == nil && server.ConfigPath == "" {
			err = errNoPath
		}
		return server, err
	})
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		server, err := ask(ctx)
		if errors.Is(err, errNoPath) {
			err = nil
		}
		if err != nil && !s.certsD.IsKnown() {
			return "", nil // as if there were no containerd
		}
		if unread := s.certsD.Err(server.ConfigPath); unread != nil {
			return "", unread
		}
		return s.certsD.Ignored(server.Version, server.ConfigPath), err
	}
}

func storageOf(s settings, runtime *pods.Runtime, reg *registry.Registry, log *slog.Logger) images.Options {
	snapshotter := pods.UntilRestart(s.CRI.Socket, runtime.Snapshotter) // each observation needs it
	if name := s.Containerd.Snapshotter; name != "" {
		snapshotter = func(context.Context) (string, error) { return name, nil }
	}
	return images.Options{
		Socket: s.Containerd.Socket, Namespace: s.Containerd.Namespace, Snapshotter: snapshotter,
		Layers: s.Staging.Layers, Bandwidth: s.Staging.Bandwidth, Timeout: s.Staging.Timeout,
		Source: reg, Logger: log,
	}
}

// announcer is the Salt grain, or silent where it is turned off.
func announcer(s settings, log *slog.Logger) agent.Announcer {
	store := grains.New(s.root, s.Grains.Path, log)
	if !s.Grains.Enabled {
		return grains.Silent{Store: store}
	}
	return grains.Announcer{
		Store: store, Velum: s.Grains.Velum, Changed: func(ctx context.Context) { s.saltIsDue(ctx, log) },
	}
}

// policyOf turns settings and tag files into the agent's policy.
func policyOf(ctx context.Context, s settings, log *slog.Logger) (policy.Policy, error) {
	values, problems := podfiles.TagFiles(ctx, s.TagFiles)
	for _, err := range problems {
		// One broken tag file must not keep the others from being used.
		log.WarnContext(ctx, "tag file not used", "err", err)
	}
	maps.Copy(values, s.Values)
	p := policy.Policy{
		PullPolicy: s.PullPolicy, ManagedPullPolicy: s.ManagedPullPolicy,
		Values: values, Manage: map[string]bool{}, Images: s.Images, NodeName: s.NodeName,
		ListEvery: s.TagListInterval, ConfirmAfter: s.ConfirmAfter,
		StageDelay: policy.StageDelay(s.StagingSpread, s.machineID()), ApplyTimeout: s.ApplyTimeout, Settle: s.Settle,
		Forgets: apply.KubeletForgets,
		Auto:    s.Apply.Mode == config.ApplyAuto, Window: s.Apply.Windows.Open, Freeze: s.Apply.Freeze, Order: s.Apply.Order,
		MinSeverity: s.Apply.MinSeverity,
		Lock:        s.lock(), Rule: s.Rules(), MaxParallelStages: s.Staging.Images,
		Reserve: policy.Reserve{Bytes: s.Disk.Reserve, Percent: s.Disk.ReservePercent, HighMark: s.Disk.HighMark},
		Prune:   policy.Prune{Keep: s.Prune.Keep, Unstaged: s.Prune.Unstaged},
		Catalog: catalog.Policy{
			MachineID: s.machineID(), OnlyListed: s.Catalog.Unlisted == "refuse",
			IgnoreExpiry: s.Catalog.Expired == "warn", AllowLower: s.Catalog.AllowLower,
		},
		ServePrivate: s.LocalRegistry.Private,
	}
	for _, r := range s.Rewrites {
		p.Rewrites = append(p.Rewrites, manifests.Rewrite{From: r.From, To: r.To})
	}
	if err := manifests.CheckRewrites(p.Rewrites); err != nil {
		return p, configError{fmt.Errorf("rewrites: %w", err)}
	}
	for _, name := range s.Manage {
		p.Manage[name] = true
	}
	p.Owned = s.owned()
	return p, nil
}

// catalogDir is where the verified catalog is stored, below the state directory.
const catalogDir = "catalog"

// catalogOf returns the configured release catalog, or nil if the settings name none.
func catalogOf(s settings, from origin, log *slog.Logger) (catalog.Channel, error) {
	if s.Catalog.Repository == "" {
		return nil, nil //nolint:nilnil // an agent without a catalog has none
	}
	return channelOf(s, from, log)
}

// channelOf returns the channel of the configured release catalog. A rewrite does not change its name: it says what it
// was published as.
func channelOf(s settings, from origin, log *slog.Logger) (*channel.Channel, error) {
	repository, err := release.NormalizeRepository(s.Catalog.Repository)
	if err != nil {
		return nil, configError{fmt.Errorf("catalog: %w", err)}
	}
	keys := s.Catalog.Keys
	if len(keys) == 0 {
		keys = s.SignatureKeys
	}
	return channel.New(channel.Options{
		Repository: repository, Channel: s.Catalog.Channel, Dir: filepath.Join(s.StateDir, catalogDir), From: from,
		Verifier: signature.Releases{
			Verifier: signature.New(signature.Options{Dirs: keys, Require: s.Catalog.RequiredKeys, Log: log}), From: from,
		},
		Signatures: policy.Signatures(s.Catalog.Signatures), Now: time.Now, Log: log,
	}), nil
}

// lock is the fleet lock as a policy.
func (s settings) lock() fleet.Lock {
	l := s.Apply.Lock
	if !l.IsSet() {
		return fleet.Lock{}
	}
	id, _ := s.lockID()
	return fleet.Lock{Pods: l.Pods, Target: l.Target(), ID: id}
}

// lockID is this node's id in the lock server's list, and the one that it may have had before. In the cluster, it is
// the name of the node.
func (s settings) lockID() (id, former string) {
	if s.Apply.Lock.Lease != "" {
		return strings.ToLower(s.name()), ""
	}
	own := fleetlock.ID(s.machineID())
	if s.Apply.Lock.ID == config.LockIDZincati {
		return fleetlock.ZincatiID(s.machineID()), own
	}
	return own, "" // Zincati's id may be Zincati's
}

// lease is the lock in a Lease of the cluster.
func (s settings) lease() (*kubelease.Client, error) {
	l := s.Apply.Lock
	name, _ := s.lockID()
	return kubelease.New(kubelease.Options{
		Lease: l.Lease, Kubeconfig: l.Kubeconfig, Root: s.root, Node: name, Machine: fleetlock.ID(s.machineID()),
		Version: version,
	})
}

// joinFleet has an agent ask the control plane, and take the fleet lock, where it is to.
func (s settings) joinFleet(a *agent.Agent, log *slog.Logger) error {
	if s.Apply.Quorum == config.QuorumRequire {
		a.Quorum = quorum.Control{Root: s.root, Kubeconfigs: s.platform.Kubeconfigs, Version: version}
	}
	l := s.Apply.Lock
	id, former := s.lockID()
	switch {
	case l.Lease != "":
		lock, err := s.lease()
		if err != nil {
			return configError{err}
		}
		a.FleetLock = lock
		return nil
	case l.URL == "":
		return nil
	}
	lock, err := fleetlock.New(fleetlock.Options{
		URL: l.URL, Group: l.Group, ID: id, Former: former, CA: l.CA, Cert: l.Cert, Key: l.Key, Version: version,
		Roots: hosts.NewTrust(s.root, os.Getenv, log).Roots, Proxy: hosts.NewProxies(s.root, os.Getenv).For,
	})
	if err != nil {
		return configError{err}
	}
	a.FleetLock = lock
	return nil
}

// preconditions are what else on the node holds an apply.
type preconditions struct {
	reboot  reboot.Node
	kubelet systemd.Kubelet
	unread  func() error // of settings
}

func (s settings) preconditions() preconditions {
	address := systemBus(s.root)
	return preconditions{
		reboot: reboot.Node{Root: s.root, Bus: address}, kubelet: systemd.Kubelet{Bus: address, Unit: s.platform.KubeletUnit},
		unread: s.unread,
	}
}

// systemBus is the D-Bus address of the system bus, as the D-Bus specification
// finds it.
func systemBus(root string) string {
	if address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return bus.At(filepath.Join("/", root, "run/dbus/system_bus_socket"))
}

// Holds checks all preconditions at the same time.
func (p preconditions) Holds(ctx context.Context) []status.Hold {
	var reboots, kubelet []status.Hold
	var both sync.WaitGroup
	both.Go(func() { reboots = p.reboot.Holds(ctx) })
	both.Go(func() { kubelet = p.kubelet.Holds(ctx) })
	both.Wait()
	holds := append(reboots, kubelet...)
	if p.unread == nil {
		return holds
	}
	if err := p.unread(); err != nil {
		holds = append(holds, status.Hold{Name: status.HoldKubelet, Reason: err.Error()})
	}
	return holds
}
