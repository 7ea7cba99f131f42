// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// setupUnit runs setupScript of SUSE CaaS Platform at each boot, before kubelet.
	setupUnit   = "admin-node-setup.service"
	setupScript = "admin-node-setup.sh"
	// maxScript bounds what is read of it, in bytes: it has some hundred lines.
	maxScript = 1 << 20
)

// setupDirs are where the script has been, or could be.
var setupDirs = []string{
	"usr/share/caasp-container-manifests", "usr/lib/caasp-container-manifests", "usr/libexec/caasp-container-manifests",
	"usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin",
}

// imageLoop is a line of the loop that copies the templates over the pod manifests:
// it puts tags in the place of __TAG__, and copies. The script calls kubelet's
// directory $kube_dir.
var imageLoop = regexp.MustCompile(`__TAG__|(^|[\s;&|(])(cp|mv|install|rsync)\s.*(kubernetes/manifests|\$\{?kube_dir)`)

// checkSetup finds the script that copies over our pod manifests at each boot. Where
// there is none nothing is said.
func (s settings) checkSetup() []finding {
	script := s.setupScript()
	if script == "" {
		return nil
	}
	file, err := os.Open(script)
	if err != nil {
		return nil // the unit names one that is not there
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxScript))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if !strings.HasPrefix(line, "#") && imageLoop.MatchString(line) {
			return []finding{warn(setupScript,
				script+" copies templates over the pod manifests at each boot: what was applied is offered anew",
				`take its image loop out, see "The image loop of admin-node-setup.sh" in docs/install.md`)}
		}
	}
	return []finding{ok(setupScript, script+" has no image loop")}
}

// setupScript is what the unit starts: as drop-ins below /etc say, or its own file
// there, or that of the package; without a unit, wherever the script is. Empty: none,
// or the unit is masked.
func (s settings) setupScript() string {
	program := ""
	for _, dir := range []string{"usr/lib/systemd/system", "etc/systemd/system"} {
		unit := s.at(dir, setupUnit)
		if target, err := os.Readlink(unit); err == nil && target == os.DevNull {
			return ""
		}
		// The pattern is ours and cannot be malformed, unless root holds a bracket.
		dropIns, _ := filepath.Glob(unit + ".d/*.conf")
		for _, name := range append([]string{unit}, dropIns...) {
			if started := execStart(name); started != "" {
				program = s.at(started)
			}
		}
	}
	if program != "" {
		return program
	}
	for _, dir := range setupDirs {
		if _, err := os.Stat(s.at(dir, setupScript)); err == nil {
			return s.at(dir, setupScript)
		}
	}
	return ""
}

// execStart is the last program that a unit's file starts: the script, where a shell
// is named before it.
func execStart(name string) (program string) {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); is {
			words := strings.Fields(strings.TrimLeft(value, "-@:+!"))
			if n := slices.IndexFunc(words, isScript); n >= 0 {
				program = words[n]
			} else if len(words) > 0 {
				program = words[0]
			}
		}
	}
	return program
}

func isScript(word string) bool {
	return strings.HasPrefix(word, "/") && strings.HasSuffix(word, ".sh")
}

// at is a path of the host.
func (s settings) at(parts ...string) string {
	return filepath.Join("/", s.root, filepath.Join(parts...))
}
