// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"
	"github.com/stretchr/testify/assert"
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
	"an inline ca": "[host.\"https://m1\"]\nca = \"-----BEGIN CERTIFICATE-----\\ns3cr3tpassw0rd\"\n",
	"no toml":      "[host.\"https://u:s3cr3tpassw0rd@m1\"\n",
	"a timeout":    "[host.\"https://m1\"]\ndial_timeout = \"https://u:s3cr3tpassw0rd@m1\"\n",
}

func TestErrorsOfHostsFilesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range filesWithSecrets {
		put(t, dir, name+"/hosts.toml", text)
	}
	for _, d := range Dirs(t.Context(), []string{dir}) {
		assert.NotContains(t, fmt.Sprint(d.Err, d.Unparsed), "s3cr3t", d.Path)
		var said bytes.Buffer
		base := another(log.L.Logger)
		base.SetFormatter(log.L.Logger.Formatter)
		base.SetOutput(&said)
		base.SetLevel(log.ErrorLevel)
		logged := masked(log.WithLogger(t.Context(), base.WithFields(nil)))
		_, err := config.ConfigureHosts(logged, config.HostOptions{
			HostDir: func(string) (string, error) { return d.Path, nil },
		})("registry.example.com")
		assert.NotContains(t, said.String(), "s3cr3t", d.Path)
		if d.Unparsed != nil && err == nil {
			assert.NotEmpty(t, said.String(), d.Path)
		}
	}
}
