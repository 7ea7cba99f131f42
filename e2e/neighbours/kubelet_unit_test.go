// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/node/unit"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// argvProgram stands in for kubelet on a host. It stores the arguments that systemd gives it in a file named after its
// directory.
const argvProgram = `#!/bin/sh
dir=${0%/kubelet}
printf '%s\0' "$@" >"/run/argv/${dir##*/}"
`

// unitWords are parts of a command line, as admins and packages write them.
var unitWords = []string{
	"--pod-manifest-path=/a", `"--pod-manifest-path=/b c"`, `'--pod-manifest-path=/d'`, `--pod-manifest-path="/e"`,
	`--pod-manifest-path=/f\x2fg`, `--pod-manifest-path=/h\tx`, `"--pod-manifest-path=/i\"j"`, `--pod-manifest-path=/%%k`,
	`--pod-manifest-path=/$$l`, `--pod-manifest-path=/${ONE}`, `--pod-manifest-path=/$ONE`, "$ONE", "$FLAGS", "${FLAGS}", "$NONE",
	"${NONE}", "--read-only-port=7", "-v 2", `\;`, "--pod-manifest-path /m", `'$FLAGS'`, `"${ONE}"`, `--node-labels=a=b`,
	`--pod-manifest-path=/%n`, `--pod-manifest-path=/%p/%i`, "--pod-manifest-path=/n'o'", `'--pod-manifest-path=/p"q'`,
	"--pod-manifest-path=/\u00e9", `--pod-manifest-path=/\u00e9`, `--pod-manifest-path=/\101`, "\"--pod-manifest-path=/r s\"",
	"--pod-manifest-path=/t#u", `--pod-manifest-path=/${ONE}$TWO${TWO}`,
}

var unitValues = []string{
	"one", `"--pod-manifest-path=/va --read-only-port=8"`, "--pod-manifest-path=/vb", `'--pod-manifest-path=/v c'`, `"a b"`, `a\x20b`,
	`"--pod-manifest-path=\"/v d\""`, "%n", "%%", "$ONE", "", `"--pod-manifest-path='/v e' -v 2"`, `--pod-manifest-path=/v\sf`,
	`"--pod-manifest-path=/v#g"`, `--pod-manifest-path=/vh # no comment`, `'--pod-manifest-path=/v\x2fi'`,
}

var unitVariables = []string{"ONE", "TWO", "FLAGS"}

// randomUnit returns the files of a unit by path.
func randomUnit(r *rand.Rand, name string) map[string]string {
	files := map[string]string{"usr/lib/systemd/system/" + name: "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\n" +
		unitLines(r, name, files2(r)) + "ExecStart=" + oneOf(r, "", "", "-", ":", "@") + "/opt/" + name + "/kubelet " + unitCommand(r) + "\n"}
	for range r.IntN(3) {
		dir := oneOf(r, "etc", "run", "usr/lib", "usr/local/lib") + "/systemd/system/" + name + ".d/"
		text := "[Service]\n" + unitLines(r, name, files2(r))
		if r.IntN(2) == 0 {
			text += "ExecStart=\nExecStart=/opt/" + name + "/kubelet " + unitCommand(r) + "\n"
		}
		if r.IntN(6) == 0 {
			text += "[Install]\nExecStart=/usr/bin/kubelet --pod-manifest-path=/wrong-section\n"
		}
		files[dir+oneOf(r, "10-a.conf", "20-b.conf", "05.conf", "c.con")] = text
	}
	for _, kind := range []string{"a", "b"} {
		var text string
		for range r.IntN(4) {
			text += oneOf(r, "", "", "# c\n", "; d\n", " ", "\n") + oneOf(r, unitVariables...) + oneOf(r, "=", "=", " = ") + oneOf(r, unitValues...) + "\n"
		}
		files["etc/env/"+name+"."+kind] = text
	}
	return files
}

func files2(r *rand.Rand) string { return oneOf(r, "a", "b", "none") }

// unitLines returns lines that set the environment.
func unitLines(r *rand.Rand, name, file string) (text string) {
	for range r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			text += "EnvironmentFile=" + oneOf(r, "-", "") + "/etc/env/" + name + "." + file + "\n"
		case 1:
			text += oneOf(r, "Environment=\n", "EnvironmentFile=\n", "# Environment=ONE=comment\n", "UnsetEnvironment=ONE\n")
		default:
			value := oneOf(r, unitValues...)
			if strings.HasPrefix(value, `"`) {
				text += "Environment=" + `"` + oneOf(r, unitVariables...) + "=" + value[1:] + "\n"
			} else {
				text += "Environment=" + oneOf(r, unitVariables...) + "=" + value + "\n"
			}
		}
	}
	return text
}

func unitCommand(r *rand.Rand) string {
	var words []string
	for range 1 + r.IntN(5) {
		words = append(words, oneOf(r, unitWords...))
		if r.IntN(8) == 0 {
			words = append(words, oneOf(r, "\\\n", "\\\n# in between\n", "\\\n  "))
		}
	}
	return strings.Join(words, " ")
}

// TestKubeletsUnitIsReadAsBySystemd checks that the agent finds the command of kubelet that systemd starts, however the
// unit, its drop-ins and its environment spell it. It skips a unit that systemd does not start, and one that the agent
// reports as unsupported.
func TestKubeletsUnitIsReadAsBySystemd(t *testing.T) {
	t.Parallel()
	for _, root := range host.Roots() {
		t.Run(string(root), func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, 600)
			h := host.New(t, node.Start(t, node.Options{}), root)
			h.OwnNetwork()
			require.Equal(t, "running", h.Boot())
			dir := t.TempDir()
			files := map[string]string{}
			for n := range rounds {
				for path, text := range randomUnit(r, unitName(n)) {
					files[path], files["opt/"+unitName(n)+"/kubelet"] = text, argvProgram
					registrytest.Put(t, dir, "/"+path, text)
				}
			}
			unpack(t, h, files)
			compared := 0
			for name, want := range started(t, h) {
				is := unit.Read(dir, name)
				if len(is.Problems) > 0 {
					continue
				}
				compared++
				require.NotEmpty(t, is.Command, "%s", show(files, name))
				assert.Equal(t, want, strings.Join(is.Command[1:], "\x00"), "%s", show(files, name))
			}
			assert.Greater(t, compared, rounds/3)
			t.Logf("%d units, %d compared", rounds, compared)
		})
	}
}

// started starts the units, and returns the arguments of the started programs by unit.
func started(t *testing.T, h *host.Host) map[string]string {
	t.Helper()
	h.Must("sh", "-c", "mkdir /run/argv; systemctl daemon-reload; cd /usr/lib/systemd/system; echo gen-*.service | xargs systemctl start || :")
	r := h.Exec("tar", "-c", "-C", "/run/argv", ".")
	all := map[string]string{}
	for packed := tar.NewReader(strings.NewReader(r.Stdout)); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		data, err := io.ReadAll(packed)
		require.NoError(t, err)
		if len(data) > 0 {
			all[filepath.Base(header.Name)] = strings.TrimSuffix(string(data), "\x00")
		}
	}
}

func unitName(n int) string { return fmt.Sprintf("gen-%d.service", n) }

func show(files map[string]string, unit string) (text string) {
	for path, data := range files {
		if strings.Contains(path, unit) {
			text += "== " + path + "\n" + data
		}
	}
	return text
}

// unpack writes files to a running host.
func unpack(t *testing.T, h *host.Host, files map[string]string) {
	t.Helper()
	var packed strings.Builder
	w := tar.NewWriter(&packed)
	for path, text := range files {
		mode := int64(0o644)
		if text == argvProgram {
			mode = 0o755
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Mode: mode, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	r := h.Run(host.Command{Stdin: packed.String(), Argv: []string{"tar", "-x", "-C", "/"}})
	require.Zero(t, r.Code, r.Stderr)
}
