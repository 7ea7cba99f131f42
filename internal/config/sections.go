// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"time"

	"github.com/kubic-project/image-update-agent/internal/window"
)

// Rewrite replaces the prefix From of a repository, up to a slash, by To.
type Rewrite struct {
	From string `yaml:"from" is:"prefix"`
	To   string `yaml:"to" is:"prefix"`
}

// Containerd is where and how images are stored.
type Containerd struct {
	Socket    string `yaml:"socket" is:"path" default:"/run/containerd/containerd.sock"`
	Namespace string `yaml:"namespace" is:"namespace" default:"k8s.io"`
	// CertsD are directories of hosts.toml files, as containerd's config_path; not written: as containerd says.
	CertsD []string `yaml:"certsD" is:"searchpath" default:"/etc/containerd/certs.d"`
	// Snapshotter is the one to unpack for; empty: the one that CRI uses.
	Snapshotter string `yaml:"snapshotter" is:"namespace?" default:""`
}

// Staging bounds what is pulled ahead of time.
type Staging struct {
	Images int `yaml:"images" is:"number 1 8" default:"2"`  // pulled at once
	Layers int `yaml:"layers" is:"number 1 16" default:"3"` // fetched at once, of all images together
	// Bandwidth is that of all pulls together, in bytes per second; 0: unlimited. LeastSpeed is what a layer has to
	// bring, in bytes per second over a minute; 0: nothing.
	Bandwidth  int64         `yaml:"bandwidth" is:"size 16KiB 1TiB unlimited" default:"0"`
	LeastSpeed int64         `yaml:"leastSpeed" is:"size 64 1GiB as slow as it is" default:"1KiB"`
	Timeout    time.Duration `yaml:"timeout" is:"duration" default:"1h"` // of one release
}

// Disk is what staging leaves free on the file system of the images: the larger of Reserve, in bytes, and
// ReservePercent, of the file system's size.
type Disk struct {
	Reserve        int64 `yaml:"reserve" is:"size 1MiB 1024TiB only the percentage counts" default:"1GiB"`
	ReservePercent int   `yaml:"reservePercent" is:"number 0 90" default:"10"`
	// HighMark is the use in percent at which kubelet begins to remove images: as configured, else kubelet's own, else
	// its default. It is never 0.
	HighMark int `yaml:"highMark" is:"number 0 100" default:"0"`
}

// Prune is what becomes of old releases.
type Prune struct {
	// Keep is how many good releases of an image are kept beside the running one.
	Keep int `yaml:"keep" is:"number 0 10" default:"1"`
	// Foreign: releases of tracked repositories that the agent did not stage are removed, too.
	Foreign bool `yaml:"foreign" is:"bool" default:"false"`
}

// Credentials are where logins for registries come from, and who may see them.
type Credentials struct {
	// File is searched before the usual ones; empty: there is none.
	File string `yaml:"file" is:"path?" default:""`
	// TokenServers see the logins of a registry, by its host.
	TokenServers map[string]string `yaml:"tokenServers" names:"host" is:"host"`
}

// CRI is the container runtime as kubelet uses it.
type CRI struct {
	Socket string `yaml:"socket" is:"path" default:"/run/containerd/containerd.sock"`
}

// Grains are what Salt reads.
type Grains struct {
	Enabled bool   `yaml:"enabled" is:"bool" default:"true"`
	Path    string `yaml:"path" is:"path" default:"/etc/salt/grains"`
	// Velum: an unchanged Velum is to drain and reboot the node for updates. Nobody writes its word by accident.
	Velum bool `yaml:"velum" is:"onoff off drain-and-reboot" default:"off"`
}

// Hooks are run beside the daemon when something has changed.
type Hooks struct {
	// SaltRefresh: Salt's minion reads its grains again.
	SaltRefresh bool `yaml:"saltRefresh" is:"bool" default:"false"`
	// Exec is a program that gets the change; empty: none.
	Exec string `yaml:"exec" is:"path?" default:""`
	// Timeout is how long each of them may take. systemd ends the hook's service after twice its most and some minutes.
	Timeout time.Duration `yaml:"timeout" is:"duration 10m" default:"1m"`
}

// Configured tells whether there is something to run.
func (h Hooks) Configured() bool { return h.SaltRefresh || h.Exec != "" }

// The modes of Apply.
const (
	ApplyManual = "manual" // a person or the UI says when
	ApplyAuto   = "auto"   // what is staged is applied while a window is open
)

// Apply is when, and in which order, updates are applied.
type Apply struct {
	Mode string `yaml:"mode" is:"oneof manual auto" default:"manual"`
	// Windows are when ApplyAuto may begin; ApplyManual ignores them.
	Windows window.Schedule `yaml:"windows" most:"64"`
	// Freeze is when applies are allowed again; zero: they are.
	Freeze time.Time `yaml:"freeze" is:"time?" default:""`
	// Order are names of pod manifests, or patterns of path.Match: those that match the first come first, and so on; then
	// the others.
	Order []string `yaml:"order" is:"filepattern"`
}

// Kubelet is what is asked of kubelet itself.
type Kubelet struct {
	// Pods is the URL of its list of pods, which knows what is ready: as configured, else that of its read-only port;
	// empty: it is not asked.
	Pods string `yaml:"pods" is:"podlist?" default:""`
}

// Metrics is where metrics are served beside the status socket.
type Metrics struct {
	// Listen is a loopback address with its port; empty: nowhere.
	Listen string `yaml:"listen" is:"listen?" default:""`
}

// Log is how the daemon logs to its standard error.
type Log struct {
	Level  slog.Level `yaml:"level" is:"level debug info warn error" default:"info"`
	Format string     `yaml:"format" is:"oneof text json" default:"text"`
}
