// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/argv"
	"github.com/kubic-project/image-update-agent/manifests"
)

// errShell is a script: what it does before it starts the program, and with which words, only a shell knows.
const errShell = words("cannot read its shell command: use plain flags")

var shells = []string{"sh", "bash", "ash", "dash"}

// wrappers start the program that follows them, with its flags.
var wrappers = []string{"nice", "ionice", "nohup", "tini", "dumb-init", "catatonit", "go-runner", "hyperkube"}

// arguments returns the words after the program in a container's command and arguments.
func (c container) arguments(env environment, program string) ([]string, error) {
	var line []string
	for _, word := range slices.Concat(c.Command, c.Args) {
		line = append(line, env.expand(word))
	}
	switch {
	case len(line) == 0 || strings.HasPrefix(line[0], "-"):
		return line, nil // of the image's entrypoint
	case slices.Contains(shells, path.Base(line[0])):
		return nil, errShell
	}
	return after(line, program)
}

// after returns the words after a program, at the start of a command or after a wrapper.
func after(command []string, program string) ([]string, error) {
	for n, word := range command {
		base := path.Base(word)
		isOld := n > 0 && path.Base(command[n-1]) == "hyperkube" && "kube-"+word == program
		if isOld || manifests.IsProgram(base, program) && !strings.HasSuffix(base, "-manager") { // kops' has other flags
			return command[n+1:], nil
		}
		if n == 0 && !slices.Contains(wrappers, base) {
			break
		}
	}
	return nil, words("its program is not " + program)
}

// flags are the values of a program's flags.
type flags struct{ argv.Flags }

// errFlags is a command line that the program rejects, or one with an unknown flag.
const errFlags = words("cannot read its arguments")

// parseFlags reads a command line that has flags alone. Those in known take the next word as their value in any case.
func parseFlags(line, known []string) (flags, error) {
	all, rest := argv.Parse(line, known)
	isEnded := len(rest) == 1 && rest[0] == "--" && line[len(line)-1] == "--"
	for name := range all {
		if strings.Contains(name, unknown) {
			return flags{}, errFlags
		}
	}
	if len(rest) > 0 && !isEnded {
		return flags{}, errFlags
	}
	return flags{all}, nil
}

// list returns the URL list of a flag: the last occurrence counts, unless it is one URL of an earlier list.
func (f flags) list(name string) string {
	list := ""
	for _, value := range f.Flags[name] {
		isIn := func(one string) bool { return strings.TrimSpace(one) == value }
		if !slices.ContainsFunc(strings.Split(list, ","), isIn) {
			list = value
		}
	}
	return list
}

// known returns a value that must be known.
func (f flags) known(name string) (string, error) {
	value := f.Last(name)
	if strings.Contains(value, unknown) {
		return "", words("the variable in " + name + " is not set")
	}
	return value, nil
}

// urls returns the URLs of a comma-separated list, as scheme and host. It omits values that are unknown, or not URLs of
// http or https; it is an error if none is left.
func urls(name, list string) ([]string, error) {
	var out []string
	bad := false
	for one := range strings.SplitSeq(list, ",") {
		at, ok := placeOf(strings.TrimSpace(one))
		if !ok {
			bad = bad || one != ""
			continue
		}
		out = append(out, at)
	}
	if bad && len(out) == 0 {
		if strings.Contains(list, unknown) {
			return nil, words("the variable in " + name + " is not set")
		}
		return nil, words("the URLs of " + name + " cannot be read")
	}
	return out[:min(len(out), maxURLs)], nil
}
