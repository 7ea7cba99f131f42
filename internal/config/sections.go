// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"time"
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
	Images    int           // pulled at once
	Layers    int           // fetched at once, of all images together
	Bandwidth int64         // of all pulls together, in bytes per second; 0: unlimited
	Timeout   time.Duration // of one release
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
}

// Log is how the daemon logs to its standard error.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

func (r *reader) staging() Staging {
	return Staging{
		Images: r.number("staging.images"), Layers: r.number("staging.layers"),
		Bandwidth: r.size("staging.bandwidth"), Timeout: r.duration("staging.timeout"),
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
