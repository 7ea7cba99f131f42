// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestHostPackage installs, upgrades, downgrades and erases the package on a running system, with its scriptlets. Units
// keep the state that the admin gave them. After the erasure, only the admin's files, the state directory and files in
// /run remain, the last until the next boot.
func TestHostPackage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		n := node.Start(t, node.Options{Containerd: node.Containerd2})
		h := host.New(t, n, root)
		require.Equal(t, "running", h.Boot())
		h.Must("mkdir", "-p", "/usr/share/licenses", "/usr/share/man/man5", "/usr/share/man/man8") // of package filesystem
		before := tree(h)
		packages := host.PackagesOf(t)

		h.Install(packages.Older)
		is := h.Show(host.Service, "ActiveState", "UnitFileState", "NeedDaemonReload")
		assert.Equal(t, map[string]string{"ActiveState": "inactive", "UnitFileState": "enabled", "NeedDaemonReload": "no"}, is,
			"the product's preset enables it, and nothing starts it in the middle of an install")
		for _, unit := range []string{renderUnit, hookPath} {
			assert.Equal(t, "enabled", h.Show(unit, "UnitFileState")["UnitFileState"], "%s comes along", unit)
		}
		story.HostFiles(h, n)
		h.WriteFile("/etc/image-update-agent/config.d/mine.yaml", "interval: 6h\n")
		n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
		h.Must("systemctl", "start", host.Service)
		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)

		admins := []string{"/etc/image-update-agent/config.yaml", "/etc/image-update-agent/config.d/mine.yaml"}
		edited := func() string { return h.Must(append([]string{"stat", "--format=%n %i %Y %a %u %s"}, admins...)...) }
		runs := h.Show(host.Service, "MainPID", "NRestarts", "ActiveState", "ExecMainStartTimestamp")
		files := edited()
		for _, p := range []host.Package{packages.Newer, packages.Older, packages.Newer} {
			h.Install(p)
			assert.Equal(t, runs, h.Show(host.Service, "MainPID", "NRestarts", "ActiveState", "ExecMainStartTimestamp"),
				"the service that runs is not touched")
			assert.Equal(t, "enabled", h.Show(host.Service, "UnitFileState")["UnitFileState"])
			assert.Equal(t, "no", h.Show(host.Service, "NeedDaemonReload")["NeedDaemonReload"])
			assert.Equal(t, files, edited())
			assert.Empty(t, warnless(h.Rpm("--verify", packageName)))
		}
		assert.Contains(t, h.ReadFile("/usr/share/image-update-agent/config.yaml"), host.NewerMark)
		h.Must("systemctl", "restart", host.Service)
		story.IsCurrent(t, hostSays(t, h, "check"))

		olderOnANewerRecord(t, h, packages.Older)
		h.Erase()
		assert.Equal(t, map[string]string{"ActiveState": "inactive", "LoadState": "not-found"},
			h.Show(host.Service, "ActiveState", "LoadState"))
		assert.Equal(t, files, edited())
		stays := slices.DeleteFunc(tree(h), func(name string) bool {
			_, was := slices.BinarySearch(before, name)
			return was
		})
		assert.Equal(t, []string{
			"/etc/image-update-agent", "/etc/image-update-agent/config.d",
			"/etc/image-update-agent/config.d/mine.yaml", "/etc/image-update-agent/config.yaml",
			"/etc/salt", "/etc/salt/grains",
			"/run/image-update-agent",
			"/usr/share/caasp-container-manifests", "/usr/share/caasp-container-manifests/manifests",
			"/usr/share/caasp-container-manifests/manifests/velum.yaml",
			"/var/lib/image-update-agent",
		}, slices.DeleteFunc(slices.Clone(stays), func(name string) bool {
			return regexp.MustCompile(`^/(var/lib|run)/image-update-agent/`).MatchString(name)
		}))
		assert.NotRegexp(t, `\.sock\b`, stays, "nobody listens any more")
		assert.Empty(t, h.Must("systemctl", "--failed", "--no-legend"))
		assert.Contains(t, n.ReadFile(story.VelumYAML), "velum:4.0.0-rev1", "the pods are not the package's")
	})
}

// olderOnANewerRecord does what a rollback of the system does: the older agent finds the record of the newer one, which
// it cannot read. It starts nevertheless.
func olderOnANewerRecord(t *testing.T, h *host.Host, older host.Package) {
	t.Helper()
	h.Must("systemctl", "stop", host.Service)
	rec := "/var/lib/image-update-agent/record.json"
	later := fmt.Sprintf(`"version": %d,`, record.RecordVersion+1)
	text := h.ReadFile(rec)
	changed := strings.Replace(text, fmt.Sprintf(`"version": %d,`, record.RecordVersion), later, 1)
	require.NotEqual(t, text, changed)
	h.Must("sed", "-i", fmt.Sprintf(`0,/"version": %d,/s//%s/`, record.RecordVersion, later), rec)
	h.Install(older)
	h.Must("systemctl", "start", host.Service)
	s := hostSays(t, h, "check")
	story.IsCurrent(t, s)
	assert.Contains(t, h.Journal(host.Service), "cannot use the record, starting with an empty one")
	assert.Contains(t, h.Must("ls", "/var/lib/image-update-agent"), fmt.Sprintf("record.json.%d.aside", record.RecordVersion+1))
}

// tree returns the sorted names of all files of the host, without those that a system writes by itself: the logs and
// rpm's database.
func tree(h *host.Host) []string {
	names := lines(h.Must("sh", "-euc", `find / -ignore_readdir_race -xdev -not -path '/var/log/*' -not -path '/var/lib/rpm*'
		find /run -ignore_readdir_race -xdev -name 'image-update-agent*' -print -path '/run/image-update-agent*' -exec find {} ';'`))
	slices.Sort(names)
	return slices.Compact(names)
}

// warnless removes the warnings of Debian's rpm.
func warnless(said string) string {
	var left []string
	for _, line := range lines(strings.TrimSpace(said)) {
		if line != "" && !strings.HasPrefix(line, "rpm: ") {
			left = append(left, line)
		}
	}
	return strings.Join(left, "\n")
}
