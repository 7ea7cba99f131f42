// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/window"
)

// Rewrite replaces the prefix From of a repository, up to a slash, by To.
type Rewrite struct{ From, To string }

// Containerd is where and how images are stored.
type Containerd struct {
	Socket      string
	Namespace   string
	CertsD      []string // directories of hosts.toml files, as containerd's config_path
	Snapshotter string   // to unpack for; empty: the one that CRI uses
}

// Staging bounds what is pulled ahead of time.
type Staging struct {
	Images    int   // pulled at once
	Layers    int   // fetched at once, of all images together
	Bandwidth int64 // of all pulls together, in bytes per second; 0: unlimited
	// LeastSpeed is what a layer has to bring, in bytes per second over a minute; 0: none.
	LeastSpeed int64
	Timeout    time.Duration // of one release
}

// Disk is what staging leaves free on the file system of the images.
type Disk struct {
	// Reserve stays free, in bytes; the larger of it and ReservePercent counts.
	Reserve int64
	// ReservePercent stays free, of the file system's size.
	ReservePercent int
	// HighMark is the use in percent at which kubelet begins to remove images: as
	// configured, else kubelet's own, else its default. It is never 0.
	HighMark int
}

// Prune is what becomes of old releases.
type Prune struct {
	// Keep is how many good releases of an image are kept beside the running one.
	Keep int
	// Foreign: releases of tracked repositories that the agent did not stage are
	// removed, too.
	Foreign bool
}

// Credentials are where logins for registries come from, and who may see them.
type Credentials struct {
	// File is searched before the usual ones; empty: there is none.
	File string
	// TokenServers see the logins of a registry, by its host.
	TokenServers map[string]string
}

// CRI is the container runtime as kubelet uses it.
type CRI struct{ Socket string }

// Grains is what Salt is told.
type Grains struct {
	Enabled bool
	Path    string
	// Velum: an unchanged Velum is to drain and reboot the node for updates.
	Velum bool
}

// What grains.velum says. The longer word is one that nobody writes who does not
// mean it.
const (
	velumOff     = "off"
	velumReboots = "drain-and-reboot"
)

// Hooks are run beside the daemon when something has changed.
type Hooks struct {
	// SaltRefresh: Salt's minion is told to read its grains again.
	SaltRefresh bool
	// Exec is a program that gets the change; empty: none.
	Exec string
	// Timeout is how long each of them may take.
	Timeout time.Duration
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
	Mode string // ApplyManual or ApplyAuto
	// Windows are when ApplyAuto may begin; ApplyManual does not look at them.
	Windows window.Schedule
	// Freeze is when applies are allowed again; zero: they are.
	Freeze time.Time
	// Order are names of pod manifests, or patterns of path.Match: those that match
	// the first come first, and so on; then the others.
	Order []string
}

// Kubelet is what is asked of kubelet itself.
type Kubelet struct {
	// Pods is the URL of its list of pods, which knows what is ready: as configured,
	// else that of its read-only port; empty: it is not asked.
	Pods string
}

// Metrics is where numbers are served beside the status socket.
type Metrics struct {
	// Listen is a loopback address with its port; empty: nowhere.
	Listen string
}

// Log is how the daemon logs to its standard error.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

func (r *reader) staging() Staging {
	return Staging{
		Images: r.number("staging.images"), Layers: r.number("staging.layers"),
		Bandwidth: r.size("staging.bandwidth"), LeastSpeed: r.size("staging.leastSpeed"),
		Timeout: r.duration("staging.timeout"),
	}
}

func (r *reader) disk() Disk {
	d := Disk{
		Reserve: r.size("disk.reserve"), ReservePercent: r.number("disk.reservePercent"),
		HighMark: r.number("disk.highMark"),
	}
	if d.HighMark == 0 {
		d.HighMark = kubeletsHighMark
	}
	return d
}

// maxWindows bounds the windows. A day has some hours.
const maxWindows = 64

func (r *reader) apply() Apply {
	return Apply{
		Mode: r.merged["apply.mode"].text, Windows: r.windows("apply.windows"),
		Freeze: r.moment("apply.freeze"), Order: r.texts("apply.order"),
	}
}

func (r *reader) windows(key string) window.Schedule {
	in := r.merged[key]
	if n := len(in.list); n > maxWindows {
		r.problems.add(in.from, fmt.Errorf("%s: %d windows, want at most %d", key, n, maxWindows))
		return nil
	}
	var found window.Schedule
	for _, entry := range in.list {
		found = append(found, r.window(key, entry.named))
	}
	return found
}

func (r *reader) window(key string, entry map[string]input) window.Window {
	var w window.Window
	for _, in := range entry["days"].list {
		days, err := window.ParseDays(in.text)
		r.check(in, key+".days", err)
		w.Days = append(w.Days, days...)
	}
	slices.Sort(w.Days)
	w.Days = slices.Compact(w.Days)
	var err error
	w.Start, err = window.ParseStart(entry["start"].text)
	r.check(entry["start"], key+".start", err)
	w.Length, err = window.ParseLength(entry["length"].text)
	r.check(entry["length"], key+".length", err)
	w.Zone, err = window.LoadZone(entry["zone"].text)
	r.check(entry["zone"], key+".zone", err)
	return w
}

// moment is zero where no time is set.
func (r *reader) moment(key string) time.Time {
	in := r.merged[key]
	if in.text == "" {
		return time.Time{}
	}
	t, err := ParseTime(in.text)
	r.check(in, key, err)
	return t
}

func (r *reader) grains() Grains {
	g := Grains{
		Enabled: r.yes("grains.enabled"), Path: r.path("grains.path"),
		Velum: r.merged["grains.velum"].text == velumReboots,
	}
	if g.Velum && !g.Enabled {
		r.problems.add(r.merged["grains.velum"].from, fmt.Errorf(
			"grains.velum: %s: no grain is written, as grains.enabled is false (%s)",
			velumReboots, r.merged["grains.enabled"].from))
	}
	return g
}

func (r *reader) hooks() Hooks {
	return Hooks{
		SaltRefresh: r.yes("hooks.saltRefresh"), Exec: r.maybePath("hooks.exec"), Timeout: r.duration("hooks.timeout"),
	}
}

func (r *reader) kubelet() Kubelet {
	if pods := r.merged[kubeletPods].text; pods != notAsked {
		return Kubelet{Pods: pods}
	}
	return Kubelet{}
}
