// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filesWithSecrets are hosts.toml files that containerd's parser rejects, with a password where its error, or the
// filesystem's, quotes it.
var filesWithSecrets = map[string]string{
	"a URL with an escape":     "[host.\"https://u:s3cr3tpassw0rd%zz@m1\"]\n",
	"a URL with a space":       "[host.\"https://u:s3cr3tpassw0rd x@m1\"]\n",
	"a URL with a slash":       "[host.\"https://u:s3cr3tpassw0rd/x@m1\"]\n",
	"a server":                 "server = \"https://u:s3cr3tpassw0rd%zz@m1\"\n",
	"a port":                   "server = \"https://u@m1:s3cr3tpassw0rd\"\n",
	"a header of a wrong type": "[host.\"https://m1\"]\n[host.\"https://m1\".header]\n\"Authorization: Basic s3cr3tpassw0rd\" = 5\n",
	"an inline key": "[host.\"https://m1\"]\nclient = \"\"\"-----BEGIN PRIVATE KEY-----\ns3cr3tpassw0rd\n" +
		"-----END PRIVATE KEY-----\"\"\"\n",
	"an inline ca":      "[host.\"https://m1\"]\nca = \"-----BEGIN CERTIFICATE-----\\ns3cr3tpassw0rd\"\n",
	"no toml":           "[host.\"https://u:s3cr3tpassw0rd@m1\"\n",
	"a key twice":       "[host.\"https://m1\"]\n[host.\"https://m1\".header]\ns3cr3t = 1\ns3cr3t = 2\n",
	"a number":          "server = 5s3cr3t\n",
	"a word":            "[host.\"https://m1\"]\n[host.\"https://m1\".header]\nAuthorization = s3cr3t\n",
	"a capability":      "[host.\"https://m1\"]\ncapabilities = [\"s3cr3t\"]\n",
	"a short timeout":   "[host.\"https://m1\"]\ndial_timeout = \"s3cr3t\"\n",
	"a ca":              "[host.\"https://m1\"]\nca = \"s3cr3t\"\n",
	"a ca in a list":    "ca = [\"s3cr3t\"]\n",
	"a ca of a type":    "[host.\"https://m1\"]\nca = { s3cr3t = \"s3cr3t\" }\n",
	"a client":          "[host.\"https://m1\"]\nclient = \"s3cr3t\"\n",
	"three for a pair":  "[host.\"https://m1\"]\nclient = [[\"s3cr3t\", \"s3cr3t\", \"s3cr3t\"]]\n",
	"a pair of a table": "[host.\"https://m1\"]\nclient = [[\"a\", { s3cr3t = \"s3cr3t\" }]]\n",
	"a header's table":  "[host.\"https://m1\".header]\nAuthorization = { s3cr3t = \"s3cr3t\" }\n",
	"a header's list":   "[host.\"https://m1\".header]\nAuthorization = [[\"s3cr3t\"]]\n",
	"a header's date":   "[host.\"https://m1\".header]\ns3cr3t = 1979-05-27\n",
	"a server's port":   "server = \"m1:s3cr3t\"\n",
	"a host's escape":   "[host.\"https://m1/%s3cr3t\"]\n",
	"a long ca":         "ca = \"" + strings.Repeat("s3cr3t", 100) + "\"\n",
	"a timeout":         "[host.\"https://m1\"]\ndial_timeout = \"https://u:s3cr3tpassw0rd@m1\"\n",
}

func TestErrorsOfHostsFilesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range filesWithSecrets {
		put(t, dir, name+"/hosts.toml", text)
	}
	for _, d := range Dirs(t.Context(), []string{dir}) {
		_, err := Order(t.Context(), d.Path, "registry.example.com")
		require.Error(t, err, d.Path)
		assert.NotContains(t, fmt.Sprint(d.Err, d.Unparsed, err), "s3cr3t", d.Path)
		var said bytes.Buffer
		base := another(log.L.Logger)
		base.SetFormatter(log.L.Logger.Formatter)
		base.SetOutput(&said)
		base.SetLevel(log.ErrorLevel)
		logged := quiet(log.WithLogger(t.Context(), base.WithFields(nil)))
		_, err = config.ConfigureHosts(logged, config.HostOptions{
			HostDir: func(string) (string, error) { return d.Path, nil },
		})("registry.example.com")
		assert.NotContains(t, said.String(), "s3cr3t", d.Path)
		if d.Unparsed != nil && err == nil {
			assert.NotEmpty(t, said.String(), d.Path)
		}
	}
}
