// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asNobody runs a program as an unprivileged user, as systemd's manager requires for a test.
func asNobody(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(env, "LC_ALL=C.UTF-8", "HOME=/", "XDG_RUNTIME_DIR=/tmp")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return string(out), err
}

// put writes a file below a root.
func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// open makes a directory of the test, its contents and its parents readable.
func open(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, map[bool]fs.FileMode{true: 0o755, false: 0o644}[entry.IsDir()])
	}))
}

// random returns the same generator at each run, unless IUA_SEED is set.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, _ := strconv.ParseUint(os.Getenv("IUA_SEED"), 10, 64)
	t.Logf("IUA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// unitPieces are parts of settings' values.
var unitPieces = []string{
	"--a", "--pod-manifest-path=/m", "b", " ", " ", " ", "  ", "\t", `"`, `'`, `"b c"`, `'d e'`, `"f 'g'"`, `\t`, `\x41`, `\x4`, `\101`, `\s`, `\"`,
	`\\`, `\q`, "\\u00e9", "ü", "$A", "${A}", "$$", "${", "=", "%%", " \\\n", "\\\n  ", " \\\n# no\n", " \\\n ; no\n more ", "\\", ":", "-",
}

func randomText(r *rand.Rand, pieces []string, most int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// randomUnit returns a unit, or a drop-in, of a service.
func randomUnit(r *rand.Rand) string {
	text := "[Service]\n"
	for range 1 + r.IntN(4) {
		switch r.IntN(9) {
		case 0:
			text += []string{"# c\n", "; c \\\n", "\n", "[Unit]\n", "[Install]\n[Service]\n", "[Service]\n", "[X-Mine]\n"}[r.IntN(7)]
		case 1:
			text += "Environment=\n"
		case 2:
			text += "ExecStart=\n"
		case 3, 4:
			text += []string{"Environment=", "Environment = ", " Environment="}[r.IntN(3)]
			text += []string{"A=", "B=", "_c=", "1=", "", `"D=`}[r.IntN(6)] + randomText(r, unitPieces, 5) + "\n"
		default:
			text += "ExecStart=" + []string{"", "-", "+", "!!", ":"}[r.IntN(5)] + "/usr/bin/kubelet " + randomText(r, unitPieces, 8) + "\n"
		}
	}
	return text
}

// dumped is systemd's view of a unit.
type dumped struct {
	start []string
	env   []string
	files int // of the unit, with its drop-ins
}

// dumpQuotes removes the backslashes that are only for a shell.
var dumpQuotes = strings.NewReplacer(`\\`, `\\`, `\$`, "$", "\\`", "`")

// dump makes systemd read the units below a root, and returns its view of each startable one.
func dump(t *testing.T, root string) map[string]dumped {
	t.Helper()
	var path []string
	for _, dir := range dirs {
		path = append(path, filepath.Join(root, dir))
	}
	out, err := asNobody(t, []string{"SYSTEMD_UNIT_PATH=" + strings.Join(path, ":")},
		"/lib/systemd/systemd", "--test", "--user", "--unit=all.target", "--no-pager")
	require.NoError(t, err, out)
	all, name, isFine := map[string]dumped{}, "", false
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.Trim(line, "\t\n"), ": ")
		if unit, is := strings.CutPrefix(key, "-> Unit "); is {
			name, isFine = strings.TrimSuffix(unit, ":"), false
			continue
		}
		d := all[name]
		switch key {
		case "Unit Load State":
			isFine = value == "loaded" && strings.HasPrefix(name, "u")
		case "Environment":
			d.env = append(d.env, value)
		case "Command Line":
			d.start, _ = split(dumpQuotes.Replace(value), true)
		case "Fragment Path", "DropIn Path":
			d.files++
		}
		if isFine {
			all[name] = d
		}
	}
	return all
}

// The command and the environment of a service with drop-ins match systemd's, which does not start the service and so
// substitutes no variables. Units with a problem are skipped.
func TestUnitsMatchSystemd(t *testing.T) {
	t.Parallel()
	const count = 1000
	r := random(t)
	root := t.TempDir()
	target, texts := "[Unit]\n", map[string]string{}
	for n := range count {
		name := fmt.Sprintf("u%d.service", n)
		target += "Wants=" + name + "\n"
		add := func(at, text string) {
			put(t, root, at, text)
			texts[name] += at + ":\n" + text
		}
		add(filepath.Join(dirs[r.IntN(len(dirs))], name), randomUnit(r)+"[Service]\nExecStart=/usr/bin/kubelet "+randomText(r, unitPieces, 8)+"\n")
		for range r.IntN(4) {
			at := filepath.Join(dirs[r.IntN(len(dirs))], name+".d", []string{"1.conf", "2.conf", "x", ".3.conf"}[r.IntN(4)])
			add(at, []string{randomUnit(r), randomUnit(r), ""}[r.IntN(3)])
		}
	}
	put(t, root, "/etc/systemd/system/all.target", target)
	put(t, root, "/lib/systemd/system/service.d/0.conf", "[Service]\nType=oneshot\nEnvironment=A=of-all\n")
	open(t, root)
	compared, unread := 0, 0
	for name, want := range dump(t, root) {
		got := Read(root, name)
		if len(got.Problems) > 0 {
			unread++
			continue
		}
		if len(got.Command) == 0 {
			assert.Empty(t, want.start, "%s: %q", name, texts[name])
			continue
		}
		compared++
		r := reader{env: map[string]string{}}
		for _, assignment := range want.env {
			key, value, _ := strings.Cut(assignment, "=")
			r.env[key] = value
		}
		if !slices.Equal(want.start, got.Command) { // the prefix : keeps the variables
			var expanded []string
			for _, word := range want.start {
				expanded = append(expanded, r.variables(word)...)
			}
			want.start = expanded
		}
		assert.Equal(t, want.start, got.Command, "%s: %q", name, texts[name])
	}
	assert.Greater(t, compared, count/3)
	t.Logf("%d units compared, %d with a problem", compared, unread)
}

// environmentPieces are parts of lines in environment files. Values have no variables, because another reader would
// substitute them.
var environmentPieces = []string{
	"a", "b c", " ", "\t", `"`, `'`, `"d e"`, `'f "g'`, `\n`, `\"`, `\'`, `\\`, `\x41`, "\\\n", "\\ ", "=", "#", ";", "# no", "ü", "\n", "`", "%", "\r",
	"\n# c\n", "\n  ; c\n", "\nexport ", "\n  ",
}

// An environment file matches systemd's view: the generator of environment.d uses the same reader.
func TestEnvironmentFilesMatchSystemd(t *testing.T) {
	t.Parallel()
	const count = 1500
	r := random(t)
	root, want := t.TempDir(), map[string]string{}
	for n := range count {
		text := randomText(r, environmentPieces, 2)
		for at := range 1 + r.IntN(3) {
			text += fmt.Sprintf("\nV%d_%d%s=%s", n, at, []string{"", " ", "\t"}[r.IntN(3)], randomText(r, environmentPieces, 6))
		}
		put(t, root, fmt.Sprintf("/environment.d/%04d.conf", n), text)
		maps.Copy(want, parseEnvironment(text))
	}
	open(t, root)
	out, err := asNobody(t, []string{"XDG_CONFIG_HOME=" + root}, "/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
	require.NoError(t, err)
	got := map[string]string{}
	assignments, _ := split(dumpQuotes.Replace(out), true)
	for _, assignment := range assignments {
		if name, value, _ := strings.Cut(assignment, "="); strings.HasPrefix(name, "V") {
			got[name] = value
		}
	}
	assert.Greater(t, len(got), count)
	for name, value := range got {
		file, _ := os.ReadFile(fmt.Sprintf("%s/environment.d/%04s.conf", root, strings.Split(name[1:], "_")[0]))
		assert.Equal(t, value, want[name], "%s: %q", name, file)
	}
	for name, value := range want {
		if strings.HasPrefix(name, "V") && value != "" { // the generator omits empty ones
			assert.Contains(t, got, name)
		}
	}
	t.Logf("%d variables compared", len(got))
}
