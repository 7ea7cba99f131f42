// SPDX-License-Identifier: Apache-2.0

// Package packaging_test holds the package to the rest of the checkout. That it builds and installs, e2e tests.
package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}

// match returns what the one match of a pattern has in its parentheses.
func match(t *testing.T, pattern, in string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1)
	require.Len(t, found, 1, pattern)
	return found[0][1]
}

// A unit that the macros do not name is not stopped at erase, and no preset counts for it.
func TestTheMacrosNameEveryUnit(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("../systemd/image-update-agent*.*")
	require.NoError(t, err)
	var names []string
	for _, unit := range units {
		names = append(names, filepath.Base(unit))
	}
	assert.ElementsMatch(t, names, strings.Fields(match(t, `(?m)^%global units (.+)$`, text(t, "image-update-agent.spec"))))
}

func TestTheSpecWantsTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	spec := text(t, "image-update-agent.spec")
	version := match(t, `(?m)^go (\S+)$`, text(t, "../go.mod"))
	assert.Equal(t, version, match(t, `(?m)^BuildRequires:  golang >= (\S+)$`, spec))
	minor := version[:strings.LastIndex(version, ".")]
	assert.Equal(t, minor, match(t, `(?m)^BuildRequires:  golang\(API\) >= (\S+)$`, spec))
}

// A scriptlet runs in a snapshot that nobody runs yet, so there is nothing in it but systemd's macros: none that starts
// or restarts. The one command of ours is for erasing: hosts.toml would name a host that is not there any more.
func TestScriptletsAreMacrosOfSystemd(t *testing.T) {
	t.Parallel()
	spec := text(t, "image-update-agent.spec")
	var macros []string
	in := false
	for line := range strings.Lines(spec) {
		line = strings.TrimSpace(line)
		switch {
		case regexp.MustCompile(`^%(pre|post|preun|postun|pretrans|posttrans|trigger\w*|filetrigger\w*|verifyscript)\b`).MatchString(line):
			in = true
			assert.Regexp(t, `^%(pre|post|preun|postun)$`, line, "another kind, or its own interpreter")
		case strings.HasPrefix(line, "%files"), strings.HasPrefix(line, "%if "), line == "%else", line == "%endif":
			in = false
		case in && line != "" && !strings.HasPrefix(line, "#"):
			macros = append(macros, line)
		}
	}
	assert.Equal(t, []string{
		"%service_add_pre %{units}", "%service_add_post %{units}",
		"%{local_registry_off}", "%service_del_preun %{units}", "%service_del_postun_without_restart %{units}",
		"%systemd_post %{units}", "%{local_registry_off}", "%systemd_preun %{units}", "%systemd_postun %{units}",
	}, macros)
	assert.Equal(t, `[ "$1" -ne 0 ] || %{_bindir}/image-update-agent local-registry disable --all --write >/dev/null 2>&1 || :`,
		match(t, `(?m)^%global local_registry_off (.+)$`, spec), "at erase only, and it fails nothing")
}

// The form that SUSE's build service reads: newest first, a rule above each, an empty line below its head.
func TestChanges(t *testing.T) {
	t.Parallel()
	entries := strings.Split(text(t, "image-update-agent.changes"), strings.Repeat("-", 67)+"\n")
	require.Greater(t, len(entries), 1)
	assert.Empty(t, entries[0])
	var last time.Time
	for i, entry := range entries[1:] {
		head := regexp.MustCompile(`^(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d UTC \d{4}) - [^<]+ <\S+@\S+>\n\n- \S`).FindStringSubmatch(entry)
		require.NotNil(t, head, entry)
		at, err := time.Parse("Mon Jan _2 15:04:05 MST 2006", head[1])
		require.NoError(t, err, "the weekday, too")
		if i > 0 {
			assert.True(t, at.Before(last), head[1])
		}
		last = at
		assert.True(t, strings.HasSuffix(entry, "\n\n"), "an empty line ends it")
		for i, line := range strings.Split(entry, "\n") {
			assert.True(t, i == 0 || len(line) <= 67, line)
		}
	}
}
