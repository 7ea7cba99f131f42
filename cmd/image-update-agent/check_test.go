// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/images"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// found wants a finding of that verdict with those texts, and a remedy exactly
// where something is to be done.
func found(t *testing.T, f finding, verdict string, texts ...string) {
	t.Helper()
	assert.Equal(t, verdict, f.Verdict, "%+v", f)
	for _, text := range texts {
		assert.Contains(t, f.Detail+"\n"+f.Remedy, text)
	}
	assert.Equal(t, verdict == verdictOK, f.Remedy == "", "%+v", f)
}

// spaces are image file systems of 100 GB, but where a name says otherwise.
var spaces = map[string]struct {
	free    int64
	disk    config.Disk
	verdict string
	texts   []string
}{
	"plenty": {
		60e9,
		config.Disk{Reserve: 1 << 30, ReservePercent: 10, HighMark: 85},
		verdictOK,
		[]string{"/images: 60.0 GB of 100.0 GB free", "10.0 GB are reserved", "at 85 % kubelet removes images (15.0 GB free)", "room for 45.0 GB"},
	},
	"the reserve is larger": {
		24e9,
		config.Disk{Reserve: 20e9, ReservePercent: 10, HighMark: 85},
		verdictOK,
		[]string{"20.0 GB are reserved", "room for 4.0 GB"},
	},
	"below the reserve": {
		19e9,
		config.Disk{Reserve: 20e9, ReservePercent: 10, HighMark: 85},
		verdictWarn,
		[]string{"nothing is staged until 1.0 GB more are free", "disk.reserve", "crictl rmi IMAGE"},
	},
	"exactly the reserve":         {20e9, config.Disk{Reserve: 20e9, HighMark: 85}, verdictWarn, []string{"until 1 bytes more"}},
	"the percentage is larger":    {14e9, config.Disk{Reserve: 1, ReservePercent: 14, HighMark: 90}, verdictWarn, []string{"14.0 GB are reserved"}},
	"kubelet collects":            {14e9, config.Disk{Reserve: 1, HighMark: 85}, verdictWarn, []string{"kubelet removes images now", "enlarge"}},
	"kubelet collects at another": {14e9, config.Disk{Reserve: 1, HighMark: 90}, verdictOK, []string{"at 90 %", "room for 4.0 GB"}},
}

func TestCheckImageSpace(t *testing.T) {
	t.Parallel()
	for name, c := range spaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := checkImageSpace(agent.Filesystem{Path: "/images", Size: 100e9, Free: c.free}, c.disk)
			found(t, f, c.verdict, c.texts...)
		})
	}
	found(t, checkImageSpace(agent.Filesystem{Path: "/images"}, config.Disk{}), verdictWarn, "/images: of unknown size")
}

var errNoName = errors.New("names no snapshotter")

// sayings are what configuration, CRI and containerd say of the snapshotter.
var sayings = map[string]struct {
	said    snapshotters
	verdict string
	texts   []string
}{
	"CRI's":                 {snapshotters{cri: "overlayfs"}, verdictOK, []string{"overlayfs, as CRI says"}},
	"CRI's, as configured":  {snapshotters{configured: "overlayfs", cri: "overlayfs"}, verdictOK, []string{"as configured and as CRI says"}},
	"another than CRI's":    {snapshotters{configured: "native", cri: "overlayfs"}, verdictFail, []string{"native is configured, and CRI uses overlayfs", "remove containerd.snapshotter"}},
	"CRI says nothing":      {snapshotters{criErr: errNoName}, verdictFail, []string{errNoName.Error(), "set containerd.snapshotter"}},
	"configured, CRI quiet": {snapshotters{configured: "native", criErr: errNoName}, verdictWarn, []string{"native, as configured; " + errNoName.Error()}},
	"not loaded":            {snapshotters{cri: "zfs"}, verdictFail, []string{"zfs: containerd has not loaded it; it has native, overlayfs", "journalctl -u containerd"}},
	"configured, not there": {snapshotters{configured: "overlay", cri: "overlayfs"}, verdictFail, []string{"overlay: containerd has not loaded it"}},
}

func TestCheckSnapshotter(t *testing.T) {
	t.Parallel()
	for name, c := range sayings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.said.server.Snapshotters = map[string][]string{"overlayfs": nil, "native": nil}
			found(t, c.said.check(), c.verdict, c.texts...)
		})
	}
}

func TestCheckHosts(t *testing.T) {
	t.Parallel()
	serverOnly := hosts.Dir{Path: "/c/a", Server: "m1"}
	mirror := hosts.Dir{Path: "/c/b", Server: "m1", HostTable: true}
	broken := hosts.Dir{Path: "/c/c", Unparsed: errors.New("unknown capability pul")}
	lost := hosts.Dir{Path: "/c/d", Err: errors.New("no such file")}
	only := func(version string, dirs ...hosts.Dir) finding {
		all := checkHosts(dirs, version)
		require.Len(t, all, 1)
		return all[0]
	}
	found(t, only("v2.4.2"), verdictOK, "no hosts.toml")
	found(t, only("v2.4.2", serverOnly, mirror), verdictOK, "2 hosts.toml")
	found(t, only("1.7.24", serverOnly), verdictOK)
	found(t, only("", serverOnly), verdictOK)
	found(t, only("1.6.20~ds1", mirror), verdictOK)
	found(t, only("1.6.20~ds1", hosts.Dir{Path: "/c/empty"}), verdictOK)
	found(t, only("1.6.20~ds1", serverOnly), verdictFail, "/c/a/hosts.toml: no [host] table: containerd 1.6.20~ds1 ignores the whole file", "add a line with [host]")
	found(t, only("v1.6.9", hosts.Dir{Path: "/c/ca", Authorities: true}), verdictFail, "/c/ca/hosts.toml")
	all := checkHosts([]hosts.Dir{mirror, broken, lost}, "v2.4.2")
	require.Len(t, all, 2, "each file is named")
	found(t, all[0], verdictFail, "/c/c/hosts.toml: unknown capability pul: containerd v2.4.2 ignores the whole file, and asks upstream", "correct the file")
	found(t, all[1], verdictFail, "/c/d/hosts.toml: no such file: nothing can be pulled")
}

func TestCheckTrust(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	before, after, atBoot := peer{started: changed.Add(-time.Hour)}, peer{started: changed.Add(time.Hour)}, peer{started: changed.Add(-settling)}
	own := []hosts.Dir{{Path: "/c/a"}, {Path: "/c/b", Authorities: true}, {Path: "/c/c", Authorities: true}}
	for name, c := range map[string]struct {
		containerd peer
		daemon     *peer
		dirs       []hosts.Dir
		texts      []string // one for each warning
	}{
		"all is newer":        {after, &after, own, nil},
		"changed at boot":     {atBoot, &atBoot, own, nil},
		"no daemon":           {after, nil, own, nil},
		"containerd is older": {before, &after, own, []string{"kubelet's pulls go by what it was before"}},
		"the daemon is older": {after, &before, own, []string{"hosts of /c/b have a ca of their own"}},
		"both are older":      {before, &before, own, []string{"systemctl restart containerd", "systemctl restart image-update-agent"}},
		"it does not matter":  {after, &before, own[:1], nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := checkTrust("/etc/ssl/ca-bundle.pem", changed, c.containerd, c.daemon, c.dirs)
			if c.texts == nil {
				require.Len(t, all, 1)
				found(t, all[0], verdictOK, "/etc/ssl/ca-bundle.pem")
				return
			}
			require.Len(t, all, len(c.texts))
			for i, text := range c.texts {
				found(t, all[i], verdictWarn, text, "2026-12-01T12:00:00Z")
			}
		})
	}
}

func TestBundle(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	_, _, there := bundle(root)
	assert.False(t, there)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), 0o755), "a directory is none")
	suse := filepath.Join(root, "etc/ssl/ca-bundle.pem")
	require.NoError(t, os.WriteFile(suse, nil, 0o600))
	at := time.Unix(1_800_000_000, 0)
	require.NoError(t, os.Chtimes(suse, at, at))
	path, changed, there := bundle(root)
	assert.True(t, there)
	assert.Equal(t, suse, path)
	assert.True(t, at.Equal(changed))
}

// programs are those on containerd's PATH, and what becomes of them.
var programs = map[string]struct {
	version     string
	environment map[string]string
	there       string
	verdict     string
	texts       []string
}{
	"igzip":            {"v2.4.2", nil, "igzip unpigz", verdictOK, []string{"containerd uses /bin/igzip"}},
	"unpigz":           {"v2.4.2", nil, "unpigz", verdictOK, []string{"/bin/unpigz"}},
	"none":             {"v2.4.2", map[string]string{"PATH": "/bin"}, "", verdictAdvice, []string{"no igzip or unpigz in its PATH (/bin)", "install igzip (package isa-l or isal), the fastest, or unpigz", "systemctl restart containerd"}},
	"none for 1.6":     {"1.6.20~ds1", nil, "", verdictAdvice, []string{"no unpigz in its PATH", "install unpigz (package pigz), then"}},
	"1.7 has no igzip": {"1.7.24", nil, "igzip", verdictAdvice, []string{"install unpigz"}},
	"igzip turned off": {"2.0.1", map[string]string{"CONTAINERD_DISABLE_IGZIP": "true"}, "igzip unpigz", verdictOK, []string{"/bin/unpigz"}},
	"turned on":        {"2.0.1", map[string]string{"CONTAINERD_DISABLE_IGZIP": "0"}, "igzip", verdictOK, []string{"/bin/igzip"}},
	"all turned off":   {"2.0.1", map[string]string{"CONTAINERD_DISABLE_IGZIP": "1", "CONTAINERD_DISABLE_PIGZ": "t"}, "igzip unpigz", verdictOK, []string{"turns other programs off"}},
}

func TestCheckDecompression(t *testing.T) {
	t.Parallel()
	for name, c := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := checkDecompression(c.version, c.environment, func(program string) string {
				if strings.Contains(c.there, program) {
					return "/bin/" + program
				}
				return ""
			})
			found(t, f, c.verdict, c.texts...)
		})
	}
}

func TestCheckParallel(t *testing.T) {
	t.Parallel()
	able := images.Server{Version: "v2.4.2", Snapshotters: map[string][]string{"overlayfs": {"remap-ids", rebase}, "native": nil}}
	found(t, checkParallel(able, "overlayfs", 0), verdictAdvice, "not in kubelet's own pulls: containerd v2.4.2 is not told to", "set max_concurrent_unpacks = 4 below [plugins.\"io.containerd.transfer.v1.local\"]")
	found(t, checkParallel(able, "overlayfs", 1), verdictAdvice)
	found(t, checkParallel(able, "overlayfs", 4), verdictOK, "4 layers at once in kubelet's own pulls")
	found(t, checkParallel(able, "native", 4), verdictOK, "with native unpacks the layers of an image one after another")
	found(t, checkParallel(images.Server{Version: "1.6.20"}, "overlayfs", 0), verdictOK, "containerd 1.6.20 with overlayfs unpacks")
}

func TestMajorMinor(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][2]int{
		"v2.4.2": {2, 4}, "1.6.20~ds1": {1, 6}, "2.10.0-rc.1+unknown": {2, 10}, "": {}, "devel": {}, "v3": {},
	} {
		major, minor := majorMinor(version)
		assert.Equal(t, want, [2]int{major, minor}, version)
	}
}

// began is when this process was ready to run tests.
var began = time.Now()

// A server on a unix socket is found, with what it was started with: here, this
// very process.
func TestPeer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	p, err := peerOf(t.Context(), filepath.Join(dir, "s"))
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), p.pid)
	assert.WithinRange(t, p.started, began.Add(-time.Minute), began.Add(time.Second/ticks))
	environment, err := p.environment()
	require.NoError(t, err)
	require.NotEmpty(t, environment["PATH"])
	assert.Truef(t, strings.HasSuffix(os.Getenv("PATH"), environment["PATH"]), "as at the start, before testscript put its own in front: %s", environment["PATH"])

	require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), nil, 0o600))
	assert.Empty(t, p.lookPath(dir, "program"), "not executable")
	require.NoError(t, os.Chmod(filepath.Join(dir, "program"), 0o700))
	assert.Equal(t, filepath.Join(dir, "program"), p.lookPath("/none:"+dir, "program"))
	assert.Empty(t, p.lookPath(dir, "none"))
	assert.Empty(t, p.lookPath(strings.TrimPrefix(dir, "/"), "program"), "relative to where?")
	assert.Empty(t, p.lookPath(filepath.Dir(dir), filepath.Base(dir)), "a directory")

	_, err = peerOf(t.Context(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckClock(t *testing.T) {
	t.Parallel()
	built := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	now := built.Add(30 * 24 * time.Hour)
	clocks := func(ahead ...time.Duration) *dates {
		d := new(dates)
		for i, a := range ahead {
			d.note(string(rune('a'+i)), http.Header{"Date": {now.Add(a).Format(http.TimeFormat)}}, now)
		}
		return d
	}
	found(t, clocks().check(now, built), verdictOK, "2026-12-31T00:00:00Z")
	found(t, clocks().check(built.Add(-time.Hour), built), verdictOK)
	found(t, clocks().check(built.Add(-48*time.Hour), built), verdictFail, "before this program was built (2026-12-01T00:00:00Z)", "timedatectl")
	found(t, clocks(drift).check(now, built), verdictOK)
	found(t, clocks(-drift).check(now, built), verdictOK)
	found(t, clocks(2*time.Minute).check(now, built), verdictWarn, "2m0s behind the clock of a", "timedatectl")
	found(t, clocks(-time.Hour, 2*time.Hour).check(now, built), verdictWarn, "1h0m0s ahead of the clock of a")
	found(t, clocks(2*time.Minute, -time.Hour).check(now, built), verdictWarn, "2m0s behind the clock of a")
	found(t, clocks(time.Hour, 0).check(now, built), verdictOK)

	cached := new(dates)
	cached.note("a", http.Header{"Date": {now.Add(-time.Hour).Format(http.TimeFormat)}, "Age": {"3600"}}, now)
	found(t, cached.check(now, built), verdictOK)
	silent := new(dates)
	silent.note("a", http.Header{"Date": {"yesterday"}}, now)
	assert.Empty(t, silent.ahead)
}

func TestDatesAreTakenFromTheWire(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	d := new(dates)
	client := http.Client{Transport: d.wrap(http.DefaultTransport)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	found(t, d.check(time.Now(), born), verdictWarn, "ahead of the clock of "+server.Listener.Addr().String())
	server.Close()
	_, err = client.Do(req) //nolint:bodyclose // there is none
	require.Error(t, err)
}

func TestTheBuildIsNotBeforeTheFirstVersion(t *testing.T) {
	t.Parallel()
	assert.False(t, builtAt().Before(born))
}

// An answer of a registry, and what to do about it.
func TestRemedies(t *testing.T) {
	t.Parallel()
	of := func(status int, err error) error { return &agent.SourceError{Host: "r1", Status: status, Err: err} }
	verification := func(err error) error { return of(0, &tls.CertificateVerificationError{Err: err}) }
	for remedy, err := range map[string]error{
		"copy it into the mirror":           of(404, agent.ErrNotFound),
		"hosts.toml of r1":                  of(0, errors.New("connection refused")),
		"credentials":                       of(401, errors.New("401")),
		"answers 503":                       of(503, errors.New("503")),
		"see whether the node's clock":      verification(x509.CertificateInvalidError{Reason: x509.Expired}),
		"add the authority to the system's": verification(x509.UnknownAuthorityError{}),
		"hosts.toml of r1 ":                 verification(x509.CertificateInvalidError{Reason: x509.TooManyIntermediates}),
		"see the message":                   errors.New("something else"),
	} {
		assert.Contains(t, remedyOf(err)+" ", remedy)
	}
}
