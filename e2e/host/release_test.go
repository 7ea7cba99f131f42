// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// releaseFile returns the content of the one release file with this suffix.
func releaseFile(t *testing.T, suffix string) []byte {
	t.Helper()
	var found []byte
	for name, content := range host.Released(t) {
		if strings.HasSuffix(name, suffix) {
			require.Nil(t, found, suffix)
			found = content
		}
	}
	require.NotNil(t, found, suffix)
	return found
}

// TestReleaseFiles checks that the checksum file lists the other release files. `make soak` also checks that the same
// sources in another directory, with other modes and without git, give the same bytes.
func TestReleaseFiles(t *testing.T) {
	t.Parallel()
	dist, other, checkout := t.TempDir(), t.TempDir(), story.Checkout(t)
	require.NoError(t, host.Released(t).Unpack(dist))
	story.Shell(t, dist, `sha256sum --check --strict --quiet SHA256SUMS`)
	sums := story.Read(t, dist, "SHA256SUMS")
	version := versionOf(t, checkout)
	for _, name := range []string{
		packageName + "-" + version + ".tar.gz", "vendor.tar.gz", packageName + ".spec", "_service",
		packageName + "-" + version + "-linux-" + runtime.GOARCH + ".tar.gz", packageName + "-" + version + "-" + runtime.GOARCH + ".raw",
		packageName + "-" + version + "-linux-" + runtime.GOARCH + ".cdx.json", "image-catalog-" + version + "-linux-" + runtime.GOARCH + ".cdx.json",
		packageName + "-local-registry-" + version + "-linux-" + runtime.GOARCH + ".cdx.json",
		"image-catalog-" + version + ".oci.tar",
	} {
		assert.Contains(t, sums, "  "+name+"\n")
	}
	if !node.Soak {
		return
	}
	story.Shell(t, other, `umask 077; tar -xf "$1/$2.tar.gz"; cd "$2"; IUA_ARCHES="$(go env GOARCH)" tools/package dist ../again`,
		dist, packageName+"-"+version)
	assert.Equal(t, sums, story.Read(t, other, "again/SHA256SUMS"))
}

// TestReleaseTarball checks that a tarball has the files that make install installs, and no directories: unpacking it
// changes no directory of the system.
func TestReleaseTarball(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.tar.gz"), releaseFile(t, "-linux-"+runtime.GOARCH+".tar.gz"), 0o600))
	listed := lines(strings.TrimSpace(story.Shell(t, dir, `tar -tf x.tar.gz`)))
	for _, name := range listed {
		assert.Regexp(t, `^usr/.*[^/]$`, name)
	}
	for _, name := range []string{
		"usr/bin/image-update-agent", "usr/libexec/image-update-agent-local-registry", "usr/bin/image-catalog", "usr/lib/systemd/system/image-update-agent.service",
		"usr/share/image-update-agent/config.yaml", "usr/share/man/man8/image-update-agent.8",
	} {
		assert.Contains(t, listed, name)
	}
	story.Shell(t, dir, `tar -xf x.tar.gz`)
	assert.Contains(t, story.Shell(t, dir, `usr/bin/image-update-agent version`), packageName+" "+versionOf(t, story.Checkout(t))+" (")
	hasOnlyMethodsThatAreCalled(t, filepath.Join(dir, "usr/bin/image-update-agent"))
	hasItsModules(t, dir)
}

// runsOn asserts that a node with the host's agent is up to date.
func runsOn(t *testing.T, h *host.Host, n *node.Node) {
	t.Helper()
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
	h.Must("systemctl", "restart", host.Service)
	story.IsCurrent(t, hostSays(t, h, "check"))
	h.Await(hookPath, "ActiveState", "active")
}

// TestHostTarball follows docs/install.md, "Tarball".
func TestHostTarball(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		n := node.Start(t, node.Options{Containerd: node.Containerd2})
		h := host.New(t, n, root)
		require.Equal(t, "running", h.Boot())
		h.Feed(releaseFile(t, "-linux-"+runtime.GOARCH+".tar.gz"), "tar", "-C", "/", "-xzf", "-")
		h.Must("systemctl", "daemon-reload")
		h.Must("systemctl", "reload", "dbus")
		h.Must("systemd-tmpfiles", "--create", "image-update-agent.conf")
		h.Must("test", "-d", "/etc/image-update-agent/config.d") // the pages write there
		story.HostFiles(h, n)
		h.Must("systemctl", "enable", "--now", "image-update-agent")
		runsOn(t, h, n)
		assert.Regexp(t, `(?m)^ok +d-bus: `, h.Exec("image-update-agent", "doctor").Stdout)

		h.Must("systemctl", "disable", "--now", "image-update-agent")
		h.Feed(releaseFile(t, "-linux-"+runtime.GOARCH+".tar.gz"), "sh", "-c", `cd / && tar -tzf - | xargs rm -f`)
		assert.NotContains(t, h.Exec("find", "/usr", "-type", "f", "-name", "*image-update-agent*").Stdout, "image-update-agent")
	})
}

// TestHostSystemExtension follows docs/install.md, "System extension", with the directory form of the image, since
// a nested host has no loop devices. Nothing is written to /etc, and on a systemd that reloads units after a merge the
// agent also starts at the next boot.
func TestHostSystemExtension(t *testing.T) {
	t.Parallel()
	raw := filepath.Join(t.TempDir(), "x.raw")
	require.NoError(t, os.WriteFile(raw, releaseFile(t, "-"+runtime.GOARCH+".raw"), 0o600))
	dir := t.TempDir()
	story.Shell(t, dir, `unsquashfs -q -n -d tree "$1"; tar -cf image.tar -C tree .`, raw)
	image, err := os.ReadFile(filepath.Join(dir, "image.tar"))
	require.NoError(t, err)
	onBoth(t, func(t *testing.T, root host.Root) {
		n := node.Start(t, node.Options{Containerd: node.Containerd2})
		h := host.New(t, n, root)
		require.Equal(t, "running", h.Boot())
		story.HostFiles(h, n)
		h.Must("mkdir", "-p", "/var/lib/extensions/image-update-agent")
		h.Feed(image, "tar", "-C", "/var/lib/extensions/image-update-agent", "-xf", "-")
		h.Must("systemctl", "enable", "--now", "systemd-sysext.service")
		if root == host.Systemd252 {
			h.Must("systemctl", "daemon-reload")
		}
		h.Must("systemctl", "reload", "dbus")
		h.Await(host.Service, "ActiveState", "active")
		h.Must("systemd-tmpfiles", "--create", "image-update-agent.conf")
		runsOn(t, h, n)
		assert.NotEqual(t, 0, h.Exec("touch", "/usr/bin/image-update-agent").Code, "/usr is read-only")

		if root == host.Systemd257 {
			h.PowerOff()
			require.Equal(t, "running", h.Boot())
			h.Await(host.Service, "ActiveState", "active")
			h.Await(hookPath, "ActiveState", "active")
		}
		h.Must("systemctl", "stop", host.Service, hookPath)
		h.Must("systemd-sysext", "unmerge")
		assert.NotEqual(t, 0, h.Exec("image-update-agent", "version").Code)
	})
}

// TestServiceFile checks that _service has no service that the build service runs, and that its names are those of the
// spec file's sources.
func TestServiceFile(t *testing.T) {
	t.Parallel()
	service := string(host.Released(t)["_service"])
	version := versionOf(t, story.Checkout(t))
	assert.Equal(t, strings.Count(service, "<service "), strings.Count(service, `mode="manual"`))
	assert.NotContains(t, service, "@")
	assert.Contains(t, service, fmt.Sprintf(`<param name="version">%s</param>`, version))
	spec := string(host.Released(t)[packageName+".spec"])
	for _, source := range regexp.MustCompile(`(?m)^Source[01]: +(\S+)$`).FindAllStringSubmatch(spec, -1) {
		name := strings.NewReplacer("%{name}", packageName, "%{version}", version).Replace(source[1])
		assert.Contains(t, host.Released(t), name)
	}
}
