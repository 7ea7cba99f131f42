// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

const hidden = "hunter2"

// secretFiles are hosts.toml files with a password in every place where containerd accepts one, and where people leave
// one.
var secretFiles = map[string]string{
	"a header of a host":           "[host.\"https://m1\"]\n[host.\"https://m1\".header]\nAuthorization = \"Basic hunter2\"\n",
	"a header of the server":       "server = \"https://registry.suse.com\"\n[header]\nX-Site = [\"one\", \"hunter2\"]\n",
	"an inline table":              "[host.\"https://m1\"]\nheader = { Authorization = \"hunter2\" }\n",
	"dotted keys":                  "header.Authorization = \"hunter2\"\nserver = \"https://registry.suse.com\"\n",
	"several lines":                "[host.\"https://m1\".header]\nAuthorization = \"\"\"Basic \\\n hunter2\"\"\"\n",
	"a literal of several lines":   "[host.\"https://m1\".header]\nAuthorization = '''\nhunter2'''\n",
	"a list in several lines":      "[host.\"https://m1\".header]\nAuthorization = [ # one\n\"hunter2\", # old: hunter2 = 1\n]\n",
	"other letters":                "[HOST.\"https://m1\".HEADER]\nauthorization = \"hunter2\"\n",
	"a user of a host":             "[host.\"https://user:hunter2@m1\"]\n",
	"a user of the server":         "server = \"https://user:hunter2@registry.suse.com\"\n",
	"a user in escapes":            "server = \"https:\\u002f/user:hunter2\\u0040registry.suse.com\"\n",
	"a query":                      "[host.\"https://m1/v2?token=hunter2\"]\n",
	"a comment that was a line":    "# [header]\n# Authorization = \"Basic hunter2\"\n[host.\"https://m1\"]\n",
	"a comment in words":           "[host.\"https://m1\"] # the password is hunter2\n",
	"a comment with a header":      "#Authorization: Basic hunter2\n[host.\"https://m1\"]\n",
	"a comment with a URL":         "# was https://user:hunter2@m0 before\n[host.\"https://m1\"]\n",
	"a key that is not known":      "server = \"https://registry.suse.com\"\npassword = \"hunter2\"\n[auth]\np = \"hunter2\"\n",
	"a value in the name's place":  "[host.\"https://m1\".header]\n\"Basic hunter2\" = \"x\"\n",
	"a table in the name's place":  "[host.\"https://m1\"]\n[x.\"hunter2=\"]\n",
	"a server without scheme":      "server = \"user:hunter2@registry.suse.com\"\n",
	"a server with an at sign too": "[host.\"https://us@er:hunter2@m1/v2\"]\n",
}

// The output of enable and disable, as text or JSON, has no header values and no passwords.
func TestNoSecretIsPrinted(t *testing.T) {
	t.Parallel()
	for name, text := range secretFiles {
		require.NoError(t, toml.Unmarshal([]byte(text), &map[string]any{}), name)
		assert.NotContains(t, string(masked([]byte(text))), hidden, name)
		dir := certsD(t, map[string]string{suse + "/hosts.toml": text})
		r := Registries{Dirs: []string{dir}}
		for _, position := range []localregistry.Position{localregistry.Fallback, localregistry.Gate} {
			c, err := r.Enable(t.Context(), suse, position)
			if err != nil {
				assert.NotContains(t, err.Error(), hidden, name)
				continue
			}
			assert.Contains(t, string(c.After), hidden, "%s: it is written", name)
			assert.NotContains(t, printed(t, c), hidden, name)
			require.NoError(t, c.Write())
			back, err := r.Disable(t.Context(), suse)
			require.NoError(t, err)
			assert.NotContains(t, printed(t, back), hidden, name)
			require.NoError(t, back.Write())
		}
	}
	// The admin's lines in a block are comments: a text of several lines is one value there, too.
	block := was + "[host.'https://a'.header]\n" + was + "x = '''\n" + was + hidden + "'''\nserver = 'https://b'\n"
	assert.NotContains(t, string(masked([]byte(block))), hidden)
}

// printed returns all printed forms of a change.
func printed(t *testing.T, c Change) string {
	t.Helper()
	var out bytes.Buffer
	for _, written := range []bool{false, true} {
		c.Print(&out, &out, written)
		require.NoError(t, json.NewEncoder(&out).Encode(c.View(written)))
	}
	return out.String()
}

// Text without secrets is printed unchanged, because people compare it with their file.
func TestTextWithoutSecretsIsPrinted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		hostsFiles["a mirror, and the server"], hostsFiles["server only"], hostsFiles["a relative authority"],
		hostsFiles["carriage returns"], hostsFiles["a comment"], "client = [[\"/etc/c.pem\", \"/etc/k.pem\"]]\n", "",
		"# server = \"https://old.example.com\"\nskip_verify = true\noverride_path = false\ndial_timeout = \"5s\"\n",
	} {
		assert.Equal(t, text, string(masked([]byte(text))))
	}
	assert.Nil(t, masked(nil))
	assert.Equal(t, `server = "https://(not shown)@m1/v2?(not shown)" # ours
[header]
  x-site = "(not shown)" # who
[host."https://m1"]
client = "(not shown)"
`, string(masked([]byte(`server = "https://u:p@m1/v2?a=b" # ours
[header]
  x-site = "one" # who
[host."https://m1"]
client = '-----BEGIN PRIVATE KEY-----'
`))))
}

// For any file, the printed one has the same hosts and not the secret.
func TestMaskedKeepsTheHosts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := generated(t)
		out := masked([]byte(text))
		if strings.Contains(string(out), hidden) {
			t.Fatalf("%s\nbecomes\n%s", text, out)
		}
		var tables map[string]any
		if err := toml.Unmarshal(out, &tables); err != nil {
			t.Fatalf("%s\nbecomes\n%s\n%v", text, out, err)
		}
	})
}

// generated draws an admin's hosts.toml in which all header values are the secret.
func generated(t *rapid.T) string {
	var b strings.Builder
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	quote := func(text string) string {
		return pick("quotes", `"`+text+`"`, `'`+text+`'`, `"""`+text+`"""`, `'''`+"\n"+text+`'''`)
	}
	end := func() string {
		return pick("end", "\n", "\n", "\r\n", " # a comment\n", "\t#x\n", "\n\n", "\n# Authorization = \"hunter2\"\n")
	}
	keys := func() {
		if rapid.Bool().Draw(t, "capabilities") {
			b.WriteString("  " + pick("name", "capabilities", "Capabilities", `"capabilities"`) +
				pick("list", ` = ["pull", "resolve"]`, "=['pull']", " = [\n \"pull\", # one\n \"resolve\"\n]") + end())
		}
		if rapid.Bool().Draw(t, "skip") {
			b.WriteString("skip_verify = true" + end())
		}
		if rapid.Bool().Draw(t, "timeout") {
			b.WriteString("dial_timeout = " + quote("3s") + end())
		}
	}
	header := func() string {
		return pick("header", "Authorization", "x-site", `"X-A"`) + " = " +
			pick("as", quote(hidden), `["`+hidden+`", "b"]`, "[ # one\n'"+hidden+"' # hunter2 = x\n]") + end()
	}
	if rapid.Bool().Draw(t, "server") {
		b.WriteString("server = " + quote(pick("url", "https://registry.suse.com", "https://up.example.com:5000", "http://up")) + end())
	}
	keys()
	if rapid.Bool().Draw(t, "dotted") {
		b.WriteString("header." + header())
	} else if rapid.Bool().Draw(t, "header") {
		b.WriteString("[header]" + end() + header())
	}
	for i, n := 0, rapid.IntRange(0, 3).Draw(t, "hosts"); i < n; i++ {
		host := `"https://m` + string(rune('0'+i)) + pick("path", "", ":5000", "/v2", "/v2/suse") + `"`
		b.WriteString(pick("head", "[host."+host+"]", "[ host . "+host+" ]") + end())
		keys()
		if rapid.Bool().Draw(t, "inline") {
			b.WriteString(`header = { Authorization = "` + hidden + `", x = ["` + hidden + `"] }` + end())
		} else if rapid.Bool().Draw(t, "its header") {
			b.WriteString("[host." + host + ".header]" + end() + header())
		}
	}
	return b.String()
}

// The generated file has exactly the admin's hosts, asked in the same way, and the local registry at its position,
// according to containerd's parser; or it is rejected. Disabling restores every byte.
func TestOnlyTheLocalRegistryIsAdded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "certs.d")
	file := filepath.Join(dir, suse, hostsTOML)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	r := Registries{Dirs: []string{dir}}
	written := 0
	rapid.Check(t, func(rt *rapid.T) {
		text := generated(rt)
		require.NoError(rt, os.WriteFile(file, []byte(text), 0o600))
		before := hostsOf(t, r, suse)
		position := rapid.SampledFrom([]localregistry.Position{localregistry.Fallback, localregistry.Gate}).Draw(rt, "position")
		c, err := r.Enable(t.Context(), suse, position)
		if err != nil {
			require.ErrorContains(rt, err, "hosts would not stay the same")
			return
		}
		require.NoError(rt, c.Write())
		written++
		after := hostsOf(t, r, suse)
		at := 0
		if position == localregistry.Fallback {
			at = len(before)
		}
		require.Len(rt, after, len(before)+1)
		require.Equal(rt, localregistry.URL, after[at].URL)
		for i, host := range append(after[:at:at], after[at+1:]...) {
			require.True(rt, host.Same(before[i]), "%s: %s", text, host.URL)
		}
		disabled, err := r.Disable(t.Context(), suse)
		require.NoError(rt, err)
		require.NoError(rt, disabled.Write())
		data, err := os.ReadFile(file)
		require.NoError(rt, err)
		require.Equal(rt, text, string(data))
	})
	assert.Positive(t, written)
}
