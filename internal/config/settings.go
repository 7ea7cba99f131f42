// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/window"
)

// Settings are the whole configuration, validated. Every path is absolute and has the root before it. What a key is
// for is explained to its users in packaging/config.yaml; here stands what its reader in code has to know.
type Settings struct {
	// Interval is the time between two polls; 0: polling is off.
	Interval time.Duration `yaml:"interval" is:"duration 0" default:"12h"`
	// TagListInterval is the least time between two lists of a repository's tags.
	TagListInterval time.Duration `yaml:"tagListInterval" is:"duration" default:"24h"`
	// ConfirmAfter is how long after its first reading a changed digest is read again, before it counts; 0: it counts.
	ConfirmAfter time.Duration `yaml:"confirmAfter" is:"duration 0" default:"30s"`
	// StagingSpread is the time over which the nodes of a fleet begin to stage what a poll has found; 0: at once.
	StagingSpread time.Duration `yaml:"stagingSpread" is:"duration 0" default:"0"`
	// RequestsPerHour bounds the requests to all registries together; 0: it does not.
	RequestsPerHour    int `yaml:"requestsPerHour" is:"number 0 36000000" default:"3600"`
	ConnectionsPerHost int `yaml:"connectionsPerHost" is:"number 4 64" default:"4"`
	// PullPolicy is what rendering a template writes; ManagedPullPolicy is for the others; empty: they keep their own.
	PullPolicy        string `yaml:"pullPolicy" is:"oneof Always IfNotPresent" default:"Always"`
	ManagedPullPolicy string `yaml:"managedPullPolicy" is:"oneof? Always IfNotPresent" default:""`
	Templates         string `yaml:"templates" is:"path" platform:"Templates"`
	// PodManifests is kubelet's directory (staticPodPath); not written: as kubelet says.
	PodManifests string `yaml:"podManifests" is:"path" platform:"PodManifests"`
	// Rendered is where rendered files wait for approval: below StateDir.
	Rendered string
	// Manage are files in PodManifests that may be changed although they have no template.
	Manage []string `yaml:"manage" is:"filename"`
	// Images are followed although no pod manifest uses them.
	Images []release.Reference `yaml:"images" is:"image"`
	// Values are tags for placeholders, by repository as the template writes it. They win over TagFiles.
	Values map[string]string `yaml:"values" names:"repository" is:"tag"`
	// TagFiles are the directories of the image packages' tag files.
	TagFiles []string  `yaml:"tagFiles" is:"path" default:"/usr/share/suse-docker-images/native /usr/share/suse-containermetadata-images"` //nolint:lll // one line, as tags are
	Rewrites []Rewrite `yaml:"rewrites" key:"from"`
	// Repositories are the policies as written; Policy applies them.
	Repositories []Repository `yaml:"repositories" key:"match,layered"`
	Containerd   Containerd   `yaml:"containerd"`
	Staging      Staging      `yaml:"staging"`
	Disk         Disk         `yaml:"disk"`
	Prune        Prune        `yaml:"prune"`
	Credentials  Credentials  `yaml:"credentials"`
	// SignatureKeys are the directories of the public keys that signatures are verified with.
	SignatureKeys []string `yaml:"signatureKeys" is:"path" default:"/usr/share/pki/containers"`
	Catalog       Catalog  `yaml:"catalog"`
	CRI           CRI      `yaml:"cri"`
	Grains        Grains   `yaml:"grains"`
	Hooks         Hooks    `yaml:"hooks"`
	Apply         Apply    `yaml:"apply"`
	Kubelet       Kubelet  `yaml:"kubelet"`
	Metrics       Metrics  `yaml:"metrics"`
	// Localhost is the node's own host.
	Localhost Localhost `yaml:"localhost"`
	// StateDir keeps the record; it survives a reboot and a rollback of the OS. RuntimeDir has sockets and status.
	StateDir   string `yaml:"stateDir" is:"path" default:"/var/lib/image-update-agent"`
	RuntimeDir string `yaml:"runtimeDir" is:"path" default:"/run/image-update-agent"`
	// ApplyTimeout is how long a pod may take to run what was applied, and Settle how long it must then run without a
	// restart, to be proved; 0: not at all.
	ApplyTimeout time.Duration `yaml:"applyTimeout" is:"duration" default:"5m"`
	Settle       time.Duration `yaml:"settle" is:"duration 0" default:"30s"`
	// NodeName is the node's name in Kubernetes; empty: not known.
	NodeName string `yaml:"nodeName" is:"node?" default:""`
	Log      Log    `yaml:"log"`
}

// Rewrite replaces the prefix From of a repository, up to a slash, by To.
type Rewrite struct {
	From string `yaml:"from" is:"prefix"`
	To   string `yaml:"to" is:"prefix"`
}

// Containerd is where and how images are stored.
type Containerd struct {
	Socket    string `yaml:"socket" is:"path" platform:"ContainerdSocket"`
	Namespace string `yaml:"namespace" is:"namespace" default:"k8s.io"`
	// CertsD are directories of hosts.toml files, as containerd's config_path; not written: as containerd says.
	CertsD []string `yaml:"certsD" is:"searchpath" platform:"CertsD"`
	// Snapshotter is the one to unpack for; empty: the one that CRI uses.
	Snapshotter string `yaml:"snapshotter" is:"namespace?" default:""`
}

// Staging bounds what is pulled ahead of time.
type Staging struct {
	Images int `yaml:"images" is:"number 1 8" default:"2"`  // pulled at once
	Layers int `yaml:"layers" is:"number 1 16" default:"3"` // fetched at once, of all images together
	// Of all pulls together (0: unlimited), and of a layer over a minute (0: nothing), in bytes per second.
	Bandwidth  int64         `yaml:"bandwidth" is:"size 16KiB 1TiB unlimited" default:"0"`
	LeastSpeed int64         `yaml:"leastSpeed" is:"size 64 1GiB as slow as it is" default:"1KiB"`
	Timeout    time.Duration `yaml:"timeout" is:"duration" default:"1h"` // of one release
}

// Disk is what staging leaves free on the file system of the images: the larger of Reserve, in bytes, and
// ReservePercent, of the file system's size.
type Disk struct {
	Reserve        int64 `yaml:"reserve" is:"size 1MiB 1024TiB only the percentage counts" default:"1GiB"`
	ReservePercent int   `yaml:"reservePercent" is:"number 0 90" default:"10"`
	// HighMark is the use in percent at which kubelet begins to remove images: as configured, else kubelet's own (0),
	// else its default. It is never 0.
	HighMark int `yaml:"highMark" is:"number 0 100" default:"85"`
}

// Prune is what becomes of old releases.
type Prune struct {
	// Keep is how many good releases of an image are kept beside the running one.
	Keep int `yaml:"keep" is:"number 0 10" default:"1"`
	// Foreign: releases of tracked repositories that the agent did not stage are removed, too.
	Foreign bool `yaml:"foreign" is:"bool true false" default:"false"`
}

// Credentials are where logins for registries come from, and who may see them.
type Credentials struct {
	// File is searched before the usual ones; empty: there is none.
	File string `yaml:"file" is:"path?" default:""`
	// TokenServers see the logins of a registry, by its host.
	TokenServers map[string]string `yaml:"tokenServers" names:"host" is:"host"`
}

// Catalog is the release catalog that the node follows.
type Catalog struct {
	Repository string `yaml:"repository" is:"repository?" default:""` // empty: there is none
	Channel    string `yaml:"channel" is:"namespace" default:"prod"`
	// Unlisted is what becomes of images that the catalog does not list.
	Unlisted   string `yaml:"unlisted" is:"oneof ask refuse" default:"ask"`
	Expired    string `yaml:"expired" is:"oneof hold warn" default:"hold"`
	AllowLower bool   `yaml:"allowLower" is:"bool true false" default:"false"`
	Signatures string `yaml:"signatures" is:"oneof require warn off" default:"require"`
	// Keys are the directories of the keys that may sign it; none: those of SignatureKeys.
	Keys []string `yaml:"keys" is:"path"`
}

// CRI is the container runtime as kubelet uses it.
type CRI struct {
	Socket string `yaml:"socket" is:"path" platform:"ContainerdSocket"`
}

// Grains are what Salt reads.
type Grains struct {
	Enabled bool   `yaml:"enabled" is:"bool true false" default:"true"`
	Path    string `yaml:"path" is:"path" default:"/etc/salt/grains"`
	// Velum: an unchanged Velum is to drain and reboot the node for updates. No admin writes its word by accident.
	Velum bool `yaml:"velum" is:"onoff off drain-and-reboot" default:"off"`
}

// Hooks are run beside the daemon when something has changed.
type Hooks struct {
	// SaltRefresh: Salt's minion reads its grains again.
	SaltRefresh bool `yaml:"saltRefresh" is:"bool true false" default:"false"`
	// SaltEvent: Salt's master gets an event.
	SaltEvent bool `yaml:"saltEvent" is:"bool true false" default:"false"`
	// Exec is a program that gets the change; empty: none.
	Exec string `yaml:"exec" is:"path?" default:""`
	// Timeout is how long each of them may take. systemd ends the hook's service after twice its most and some minutes.
	Timeout time.Duration `yaml:"timeout" is:"duration 10m" default:"1m"`
}

// Configured tells whether there is something to run.
func (h Hooks) Configured() bool { return h.SaltRefresh || h.SaltEvent || h.Exec != "" }

// ApplyAuto is the mode in which what is staged is applied while a window is open.
const ApplyAuto = "auto"

// Apply is when, and in which order, updates are applied.
type Apply struct {
	Mode string `yaml:"mode" is:"oneof manual auto" default:"manual"`
	// Windows are when ApplyAuto may begin.
	Windows window.Schedule `yaml:"windows" most:"64"`
	// Freeze is when applies are allowed again; zero: they are.
	Freeze time.Time `yaml:"freeze" is:"time?" default:""`
	// Order are names of pod manifests, or patterns of path.Match: those that match the first come first, and so on; then
	// the others.
	Order []string `yaml:"order" is:"filepattern"`
	Lock  Lock     `yaml:"lock"`
	// Quorum is whether the other members of the control plane must be healthy before one of this node is stopped.
	Quorum string `yaml:"quorum" is:"oneof require off" default:"require"`
}

// LockIDZincati is the Lock.ID of nodes that the server knows by Zincati's id.
const LockIDZincati = "zincati"

// QuorumRequire is the Quorum in which the control plane is asked.
const QuorumRequire = "require"

// Lock is the lock of the fleet, by the FleetLock protocol.
type Lock struct {
	URL   string `yaml:"url" is:"lockserver?" default:""` // of the server; empty: there is no lock
	Group string `yaml:"group" is:"lockgroup" default:"default"`
	// ID is how the node's id is made: for this program, or as Zincati does.
	ID   string `yaml:"id" is:"oneof own zincati" default:"own"`
	Pods string `yaml:"pods" is:"oneof control-plane all" default:"control-plane"`
	CA   string `yaml:"ca" is:"path?" default:""` // empty: the system's authorities
	// Cert and Key are of the client; both or none.
	Cert string `yaml:"cert" is:"path?" default:""`
	Key  string `yaml:"key" is:"path?" default:""`
}

// Kubelet is what is asked of kubelet itself.
type Kubelet struct {
	// Pods is the URL of its list of pods: as configured, else that of its read-only port; empty: it is not asked.
	Pods string `yaml:"pods" is:"podlist?" default:""`
}

// Metrics is where metrics are served beside the status socket.
type Metrics struct {
	// Listen is a loopback address with its port; empty: nowhere.
	Listen string `yaml:"listen" is:"listen?" default:""`
}

// Localhost is what the node's own host answers.
type Localhost struct {
	// Private: also for images that a registry gave the agent only with a login.
	Private bool `yaml:"private" is:"bool true false" default:"false"`
}

// Log is how the daemon logs to its standard error.
type Log struct {
	Level  slog.Level `yaml:"level" is:"level debug info warn error" default:"info"`
	Format string     `yaml:"format" is:"oneof text json" default:"text"`
}
