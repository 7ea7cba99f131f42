// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const (
	packageName  = "image-update-agent"
	adminsConfig = "etc/image-update-agent/config.yaml"
	adminsDropIn = "etc/image-update-agent/config.d/mine.yaml"
)

// versionOf returns the version of a checkout with its uncommitted changes.
func versionOf(t *testing.T, checkout string) string {
	t.Helper()
	return strings.TrimSpace(story.Shell(t, checkout, `IUA_TREE=1 tools/package version`))
}

// TestRPM builds the package from the checkout as `make rpm` builds it from a commit: with vendored modules and without
// network. Since the build takes long, this one test checks everything about its result.
func TestRPM(t *testing.T) {
	t.Parallel()
	dist, checkout := t.TempDir(), story.Checkout(t)
	require.NoError(t, host.Built(t).Unpack(dist))
	sources := story.Glob(t, dist, "*.src.rpm")
	require.Len(t, sources, 1)
	rpms := slices.DeleteFunc(story.Glob(t, dist, "*.rpm"), func(name string) bool { return name == sources[0] })
	require.Len(t, rpms, 7, "the agent, completions for three shells, what is for the Salt master, the publisher, and the page in Cockpit")
	tarball := packageName + "-" + versionOf(t, checkout) + ".tar.gz"
	content := t.TempDir()
	for _, file := range rpms {
		story.Shell(t, content, `rpm2cpio "$1" | cpio -idm --quiet`, file)
	}

	t.Run("has what make install installs", func(t *testing.T) {
		t.Parallel()
		installed := t.TempDir()
		story.Shell(t, checkout, `make install BINARY="$1/usr/bin/image-update-agent" LOCAL_REGISTRY="$1/usr/libexec/image-update-agent-local-registry" \
			CATALOG="$1/usr/bin/image-catalog" DESTDIR="$2"`, content, installed)
		want, got := files(t, installed), files(t, content)
		assert.Greater(t, len(want), 8)
		for i, name := range got {
			got[i] = strings.TrimSuffix(name, ".gz") // man pages; Debian's brp-compress needs bash
		}
		assert.Equal(t, want, got)
		for _, name := range want {
			// make takes man pages and bills of materials from bin/, from whichever build they are.
			if !strings.HasPrefix(name, "usr/share/man/") && !strings.HasSuffix(name, ".cdx.json") {
				assert.Equal(t, story.Read(t, installed, name), story.Read(t, content, name), name)
			}
		}
	})
	t.Run("is a program of its own version", func(t *testing.T) {
		t.Parallel()
		program := filepath.Join(content, "usr/bin", packageName)
		isPositionIndependent(t, program)
		hasOnlyMethodsThatAreCalled(t, program)
		version := story.Shell(t, content, `usr/bin/image-update-agent version`)
		assert.Contains(t, version, packageName+" "+versionOf(t, checkout)+" (")
	})
	t.Run("says what its programs are linked of", func(t *testing.T) {
		t.Parallel()
		hasItsModules(t, content)
	})
	t.Run("keeps to the snapshot", func(t *testing.T) {
		t.Parallel()
		// These directories are separate subvolumes, so that a snapshot does not have them: see
		// transactional-update(8).
		for _, file := range rpms {
			for _, name := range lines(story.Shell(t, dist, `rpm -qlp "$1"`, file)) {
				assert.Regexp(t, `^/(usr/(bin|lib/(systemd/system|tmpfiles\.d)|libexec|share)|etc/image-update-agent)(/|$)`, name)
			}
			assert.Empty(t, story.Shell(t, dist, `rpm -qp --scripts "$1"`, file), "no scriptlet but systemd's macros, which Debian has not")
		}
	})
	t.Run("is what rpmlint asks for", func(t *testing.T) {
		t.Parallel()
		lint(t, dist, filepath.Join(checkout, "packaging", packageName+"-rpmlintrc"))
	})
	t.Run("lives and goes", func(t *testing.T) {
		t.Parallel()
		livesAndGoes(t, dist, rpms)
	})
	t.Run("has a source package of the same sources", func(t *testing.T) {
		t.Parallel()
		packed := t.TempDir()
		story.Shell(t, packed, `rpm2cpio "$1" | cpio -idm --quiet`, sources[0])
		assert.Equal(t, []string{
			tarball, packageName + "-rpmlintrc", packageName + ".spec", "vendor.tar.gz",
		}, files(t, packed))
		for _, name := range []string{tarball, "vendor.tar.gz"} {
			assert.Equal(t, story.Read(t, dist, name), story.Read(t, packed, name), name)
		}
	})
	t.Run("has sources that give the same sources", func(t *testing.T) {
		t.Parallel()
		// Other modes, another directory, no git.
		other := t.TempDir()
		story.Shell(t, other, `umask 077; tar -xf "$1/$2"; cd "${2%.tar.gz}"; tools/package tarball ..`, dist, tarball)
		for _, name := range []string{tarball, "vendor.tar.gz", packageName + ".spec"} {
			same := story.Read(t, dist, name) == story.Read(t, other, name)
			assert.True(t, same, name)
		}
	})
}

func isPositionIndependent(t *testing.T, program string) {
	t.Helper()
	binary, err := elf.Open(program)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, binary.Close()) })
	assert.Equal(t, elf.ET_DYN, binary.Type)
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	assert.Equal(t, "pie", settings["-buildmode"])
	assert.Equal(t, "true", settings["-trimpath"], "no path of the build is in it")
}

// hasItsModules compares a bill of materials with the build information of its program.
func hasItsModules(t *testing.T, root string) {
	t.Helper()
	for program, bill := range map[string]string{
		"bin/" + packageName: packageName, "bin/image-catalog": "image-catalog",
		"libexec/" + packageName + "-local-registry": packageName,
	} {
		path := filepath.Join(root, "usr/share", bill, filepath.Base(program)+".cdx.json")
		modules := hasBill(t, filepath.Join(root, "usr", program), path)
		assert.Equal(t, strings.HasPrefix(program, "bin/"), modules > 20, "%s has %d modules", program, modules)
	}
}

// hasBill checks that a bill of materials lists what a program is linked of, and returns its length.
func hasBill(t *testing.T, program, bill string) int {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range info.Deps {
		want = append(want, "pkg:golang/"+module.Path+"@"+strings.ReplaceAll(module.Version, "+", "%2B"))
	}
	text, err := os.ReadFile(bill)
	require.NoError(t, err)
	var got struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ PURL string }
	}
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, filepath.Base(program), got.Metadata.Component.Name)
	assert.Equal(t, versionOf(t, story.Checkout(t)), got.Metadata.Component.Version)
	purls := make([]string, len(got.Components))
	for i, c := range got.Components {
		purls[i] = c.PURL
	}
	assert.Equal(t, want, purls)
	return len(want)
}

// hasOnlyMethodsThatAreCalled checks that the linker could remove unused methods. No code calls this method through a
// pointer: Go keeps it only if the program looks up methods by names that are not constant, as text/template does, and
// then it keeps all exported methods, a fifth of the program (see GO_TAGS in the Makefile).
func hasOnlyMethodsThatAreCalled(t *testing.T, program string) {
	t.Helper()
	binary, err := os.ReadFile(program)
	require.NoError(t, err)
	assert.True(t, bytes.Contains(binary, []byte("reflect.Value.MethodByName")), "names of functions are found")
	assert.False(t, bytes.Contains(binary, []byte("reflect.(*Value).MethodByName")), "every method is linked")
}

// lint asserts that rpmlint's findings are exactly those of the commented list.
func lint(t *testing.T, dist, rc string) {
	t.Helper()
	clean := story.Shell(t, dist, `rpmlint --rpmlintrc "$1" ./*.rpm ./*.spec 2>&1 || true`, rc)
	assert.Contains(t, clean, "8 packages and 1 specfiles checked; 0 errors, 0 warnings", clean)
	none := filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.WriteFile(none, nil, 0o600))
	all := story.Shell(t, dist, `rpmlint --rpmlintrc "$1" ./*.rpm ./*.spec 2>&1 || true`, none)
	text, err := os.ReadFile(rc)
	require.NoError(t, err)
	filters := regexp.MustCompile(`(?m)^addFilter\("(.+)"\)$`).FindAllStringSubmatch(string(text), -1)
	assert.Greater(t, len(filters), 5)
	for _, filter := range filters {
		assert.Regexp(t, filter[1], all, "nothing needs it any more")
	}
}

// livesAndGoes installs, upgrades, downgrades and erases the package in its own root, with an admin's settings.
func livesAndGoes(t *testing.T, dist string, rpms []string) {
	t.Helper()
	root := t.TempDir()
	rpm := func(args ...string) string {
		return story.Shell(t, root, `rpm --root "$PWD" --define '_dbpath /rpmdb' "$@" 2>&1`, args...)
	}
	rpm("--initdb")
	rpm(append([]string{"-i", "--nodeps"}, rpms...)...)
	assert.Empty(t, rpm("-V", "--nodeps", packageName), "nothing differs from what was packed")
	assert.NoFileExists(t, filepath.Join(root, adminsConfig), "not ours to write")
	story.Shell(t, root, `usr/bin/image-update-agent config check --root "$PWD"`)

	for _, name := range []string{adminsConfig, adminsDropIn} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("interval: 6h\n"), 0o600))
	}
	assert.Equal(t, packageName, rpm("-qf", "/"+adminsConfig, "--qf", "%{NAME}"))
	before := []fs.FileInfo{stat(t, root, adminsConfig), stat(t, root, adminsDropIn)}
	unchanged := func() {
		t.Helper()
		for i, name := range []string{adminsConfig, adminsDropIn} {
			now := stat(t, root, name)
			assert.True(t, os.SameFile(before[i], now), name)
			assert.Equal(t, before[i].ModTime(), now.ModTime(), name)
			assert.Equal(t, "interval: 6h\n", story.Read(t, root, name))
		}
		assert.Empty(t, rpm("-V", "--nodeps", packageName))
	}
	newer, older := filepath.Join(t.TempDir(), "newer.rpm"), mainOf(t, rpms)
	successor, err := host.Repack(dist, 1)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(newer, successor, 0o600))
	rpm("-U", "--nodeps", newer)
	assert.Contains(t, story.Read(t, root, "usr/share/image-update-agent/config.yaml"), host.NewerMark)
	unchanged()
	rpm("-U", "--nodeps", "--oldpackage", older)
	assert.NotContains(t, story.Read(t, root, "usr/share/image-update-agent/config.yaml"), host.NewerMark)
	unchanged()

	rpm("-e", "--nodeps", packageName, packageName+"-bash-completion", packageName+"-fish-completion", packageName+"-zsh-completion",
		packageName+"-formula", "image-catalog", "cockpit-"+packageName)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "rpmdb")))
	assert.Equal(t, []string{adminsDropIn, adminsConfig}, files(t, root), "what an admin made, and nothing else")
}

func mainOf(t *testing.T, rpms []string) string {
	t.Helper()
	at := slices.IndexFunc(rpms, func(name string) bool {
		return regexp.MustCompile("^" + packageName + `-\d`).MatchString(filepath.Base(name))
	})
	require.GreaterOrEqual(t, at, 0)
	return rpms[at]
}

// TestScriptletsUseTheDefinedMacros checks that the spec file uses SUSE's macros where they are defined, else those of
// other distributions. Stubs record where they are expanded, and with which arguments.
func TestScriptletsUseTheDefinedMacros(t *testing.T) {
	t.Parallel()
	suse := []string{"service_add_pre", "service_add_post", "service_del_preun", "service_del_postun_without_restart"}
	systemd := []string{"systemd_post", "systemd_preun", "systemd_postun"}
	for name, c := range map[string]struct{ defined, want []string }{
		"Debian": {nil, nil},
		"Fedora": {systemd, systemd},
		"SUSE":   {slices.Concat(suse, systemd), suse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stand []string
			for _, macro := range c.defined {
				stand = append(stand, "--define", macro+"() expanded "+macro+" for %*")
			}
			spec := story.Shell(t, "../../packaging", `rpmspec -P image-update-agent.spec "$@"`, stand...)
			var got []string
			for _, m := range regexp.MustCompile(`(?m)^expanded (\w+) for image-update-agent\b.*$`).FindAllStringSubmatch(spec, -1) {
				got = append(got, m[1])
			}
			assert.Equal(t, c.want, got)
			assert.NotRegexp(t, `%(service|systemd)_`, spec)
		})
	}
}

// files returns the sorted names of all files in root that are not directories.
func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	}))
	return found
}

func lines(text string) []string { return strings.Split(text, "\n") }

func stat(t *testing.T, dir, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	require.NoError(t, err)
	return info
}
