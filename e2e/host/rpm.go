// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

const packageName = "image-update-agent"

// Dist is the result of `make rpm` for the checkout with its uncommitted changes: content by file name.
type Dist map[string][]byte

// Package is the agent's RPM.
type Package []byte

// Packages are two releases of the checkout's package, with scriptlets as SUSE's macros generate them.
type Packages struct {
	Older Package
	Newer Package // the same files but for NewerMark in the shipped configuration
}

// NewerMark is the last line of the newer package's configuration in /usr.
const NewerMark = "# the successor's"

// built and repacked make the packages once for all tests of this process: a build takes half a minute unless another
// process has made it, repacking seconds. If one fails, it fails for all tests, since a second attempt would fail, too.
var (
	built    = sync.OnceValues(build)
	repacked = sync.OnceValues(repack)
)

// Built builds the package of this checkout and its source package.
func Built(tb node.TB) Dist {
	tb.Helper()
	dist, err := built()
	if err != nil {
		tb.Fatalf("host: package: %v", err)
	}
	return dist
}

// Unpack writes the files to a directory.
func (d Dist) Unpack(dir string) error {
	var all []error
	for name, content := range d {
		all = append(all, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return errors.Join(all...)
}

// PackagesOf makes packages to install, upgrade and erase in a host.
func PackagesOf(tb node.TB) Packages {
	tb.Helper()
	packages, err := repacked()
	if err != nil {
		tb.Fatalf("host: package: %v", err)
	}
	return packages
}

// PageOf returns the package with the Cockpit page.
func PageOf(tb node.TB) Package {
	tb.Helper()
	for name, content := range Built(tb) {
		if strings.HasPrefix(name, "cockpit-"+packageName) {
			return content
		}
	}
	tb.Fatalf("host: package: no cockpit-%s", packageName)
	return nil
}

// buildScript copies the packages to a directory. It keeps those of the newest sources in e2e/.build: several processes
// need them.
const buildScript = `cd "$(dirname "$(go env GOMOD)")/.."
made=$PWD/e2e/.build/packages
mkdir -p "$made"
exec 9>"$made.lock"
flock 9
sources() {
	go version
	find . \( -path ./.git -o -path ./bin -o -path ./dist -o -path ./e2e/.build \) -prune -o -type f -print0 |
		LC_ALL=C sort -z | xargs -0 sha256sum
}
key=$(sources | sha256sum | cut -d " " -f 1)
if [ ! -e "$made/$key" ]; then
	rm -rf "$made"/*
	IUA_TREE=1 tools/package rpm "$made/new" --without check
	mv "$made/new" "$made/$key"
fi
cp "$made/$key"/* "$1"`

func build() (Dist, error) {
	dir, err := os.MkdirTemp("", packageName+"-dist")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := shell(".", buildScript, dir); err != nil {
		return nil, err
	}
	return filesOf(dir)
}

func filesOf(dir string) (Dist, error) {
	entries, err := os.ReadDir(dir)
	dist := Dist{}
	for _, entry := range entries {
		if err == nil && entry.Type().IsRegular() {
			dist[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name()))
		}
	}
	return dist, err
}

//go:embed macros.suse
var macros []byte

func repack() (Packages, error) {
	dist, err := built()
	if err != nil {
		return Packages{}, err
	}
	dir, err := os.MkdirTemp("", packageName+"-repacked")
	if err != nil {
		return Packages{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(dist.Unpack(dir), os.WriteFile(filepath.Join(dir, "macros"), macros, 0o600)); err != nil {
		return Packages{}, err
	}
	var made Packages
	for release, into := range []*Package{&made.Older, &made.Newer} {
		if *into, err = Repack(dir, release, "--load", filepath.Join(dir, "macros")); err != nil {
			return Packages{}, err
		}
	}
	return made, nil
}

// Repack makes the main package again by its own spec from the files of the RPMs in dir, an unpacked Dist: release 0
// with the same files, release 1 with NewerMark. flags are passed to rpmbuild.
func Repack(dir string, release int, flags ...string) (Package, error) {
	text, err := os.ReadFile(filepath.Join(dir, packageName+".spec"))
	if err != nil {
		return nil, err
	}
	spec := strings.Replace(string(text), "Release:        0", fmt.Sprintf("Release:        %d", release), 1)
	install := "mkdir -p %{buildroot}; cd %{buildroot}\n" +
		"for package in " + dir + "/*.rpm; do\n" +
		"  case $package in *.src.rpm) ;; *) rpm2cpio \"$package\" | cpio -idm --quiet ;; esac\ndone\n"
	if release > 0 {
		install += "echo \"" + NewerMark + "\" >>usr/share/" + packageName + "/config.yaml\n"
	}
	for section, commands := range map[string]string{"prep": ":\n", "build": ":\n", "check": ":\n", "install": install} {
		body := regexp.MustCompile(`(?ms)^%` + section + `\n.*?\n(%(?:build|install|check|if %\{defined)|# SUSE has)`)
		if !body.MatchString(spec) {
			return nil, fmt.Errorf("%s.spec: no section %%%s", packageName, section)
		}
		spec = body.ReplaceAllString(spec, "%"+section+"\n"+strings.ReplaceAll(commands, "$", "$$")+"\n$1")
	}
	work, err := os.MkdirTemp(dir, "release")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(work, "next.spec"), []byte(spec), 0o600); err != nil {
		return nil, err
	}
	err = shell(work, `rpmbuild -bb --nodeps --define "_topdir $PWD" --define "_rpmdir $PWD" \
		--define "_build_id_links none" --define "_build_name_fmt %%{NAME}.rpm" \
		--define "_binary_payload w1.gzdio" "$@" next.spec`, flags...)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(work, packageName+".rpm"))
}

// shell runs a script that must succeed. It uses no test's context, since its result is for all tests.
func shell(dir, script string, args ...string) error {
	argv := append([]string{"-euo", "pipefail", "-c", script, "bash"}, args...)
	command := exec.CommandContext(context.Background(), "bash", argv...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.TrimSpace(script), err, out)
	}
	return nil
}
