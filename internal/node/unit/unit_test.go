// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	packages = "/usr/lib/systemd/system/a.service"
	admins   = "/etc/systemd/system/a.service"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

// e2e/neighbours compares with systemd itself; this test keeps one case per rule.
func TestCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"/p a  b":                       {"/p", "a", "b"},
		`/p "a b" 'c d' e"f g"`:         {"/p", "a b", "c d", "ef g"},
		`/p a\x20b \u00e9 \101 \q "\""`: {"/p", "a b", "\u00e9", "A", `\q`, `"`},
		"/p $ONE ${ONE} x${ONE}y $NONE ${NONE} $$ONE $${ONE}": {"/p", "1", "2", "1 2", "x1 2y", "", "$ONE", "${ONE}"},
		"/p x$ONE":           {"/p", "x$ONE"},
		"-@/p name a":        {"/p", "a"},
		":/p $ONE":           {"/p", "$ONE"},
		`/p \; \; a`:         {"/p", ";", ";", "a"},
		"/p %% %n %p":        {"/p", "%", "a.service", "a"},
		"/p a \\\n# no\n  b": {"/p", "a", "b"},
		"/p a \\":            {"/p", "a"}, // at the end of the file
		"":                   nil,
	} {
		root := tree(t, map[string]string{packages: "[Service]\nEnvironment=\"ONE=1 2\"\nEnvironment=\"ONE=3\nExecStart=" + line})
		u := Read(root, "a.service")
		require.NoError(t, errors.Join(u.Problems...), line)
		assert.Equal(t, want, u.Command, line)
	}
}

func TestUnsupportedFeaturesAreProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ExecStart=/p %H":                          "%H in %H is unknown",
		"ExecStart=/p 'a":                          "a quote does not end",
		"ExecStart=/p a ; /q":                      "several commands",
		"EnvironmentFile=/etc/*.env\nExecStart=/p": "EnvironmentFile=/etc/*.env is not read",
		"EnvironmentFile=/none\nExecStart=/p":      "none: no such file",
	} {
		u := Read(tree(t, map[string]string{packages: "[Service]\n" + text + "\n"}), "a.service")
		assert.ErrorContains(t, errors.Join(u.Problems...), want)
	}
	assert.Equal(t, Unit{}, Read(t.TempDir(), "a.service"))
}

func TestDropIns(t *testing.T) {
	t.Parallel()
	base := map[string]string{packages: "[Service]\nEnvironment=A=1\nExecStart=/p $A\n"}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"none":                 {nil, []string{"/p", "1"}},
		"unit of the admin":    {map[string]string{admins: "[Service]\nExecStart=/q\n"}, []string{"/q"}},
		"by name":              {map[string]string{packages + ".d/2.conf": "[Service]\nEnvironment=A=2\n", admins + ".d/1.conf": "[Service]\nEnvironment=A=3\n"}, []string{"/p", "2"}},
		"admin's of that name": {map[string]string{packages + ".d/1.conf": "[Service]\nEnvironment=A=2\n", admins + ".d/1.conf": "[Service]\nEnvironment=A=3\n"}, []string{"/p", "3"}},
		"hidden":               {map[string]string{packages + ".d/.2.conf": "[Service]\nEnvironment=A=2\n"}, []string{"/p", "1"}},
		"of every service":     {map[string]string{"/etc/systemd/system/service.d/1.conf": "[Service]\nEnvironment=A=2\n"}, []string{"/p", "2"}},
		"the unit's wins":      {map[string]string{"/etc/systemd/system/service.d/1.conf": "[Service]\nEnvironment=A=2\n", packages + ".d/1.conf": "[Service]\n"}, []string{"/p", "1"}},
		"another section":      {map[string]string{packages + ".d/1.conf": "[Install]\nExecStart=/q\n"}, []string{"/p", "1"}},
		"environment is empty": {map[string]string{packages + ".d/1.conf": "[Service]\nEnvironment=\n"}, []string{"/p"}},
		"a file wins":          {map[string]string{packages + ".d/1.conf": "[Service]\nEnvironmentFile=/e\nEnvironment=A=2\n", "/e": "A=4\n"}, []string{"/p", "4"}},
		"unset":                {map[string]string{packages + ".d/1.conf": "[Service]\nUnsetEnvironment=A\n"}, []string{"/p"}},
		"another suffix":       {map[string]string{packages + ".d/1.conf.bak": "[Service]\nEnvironment=A=2\n"}, []string{"/p", "1"}},
	} {
		files := maps.Clone(base)
		maps.Copy(files, c.files)
		u := Read(tree(t, files), "a.service")
		require.NoError(t, errors.Join(u.Problems...), name)
		assert.Equal(t, c.want, u.Command, name)
	}
}

func TestParseEnvironment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"A=1\n B = 2 3 \n": {"A": "1", "B": "2 3"},
		"# A=1\n;B=2\nC=3": {"C": "3"},
		`A="1 2" '3 "4'`:   {"A": `1 23 "4`},
		`A=1"2 3"`:         {"A": `1"2 3"`},
		`A="\"\\\$\q"`:     {"A": `"\$\q`},
		"A=1\\\n2\\ \n":    {"A": "12 "},
		"A=\"1\n2\"\nB=3":  {"A": "1\n2", "B": "3"},
		"A\nB=\nC":         {"B": ""},
		"A='unfinished":    {"A": "unfinished"},
	} {
		assert.Equal(t, want, parseEnvironment(text), text)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("[Service]\nEnvironment='A=1 2'\nEnvironmentFile=/e\nExecStart=-/p \"$A\" ${A} \\\n\\x41 %n ; x\n", "A=\"1\\\"\" '2'\n# c\\\nB=3\\")
	f.Fuzz(func(t *testing.T, text, environment string) {
		u := Read(tree(t, map[string]string{packages: text, "/e": environment}), "a.service")
		if strings.Contains(strings.Join(u.Command, " "), "\x00") && !strings.Contains(text+environment, "\x00") {
			t.Errorf("%q has the mark of a semicolon", u.Command)
		}
	})
}
