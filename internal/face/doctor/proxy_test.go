// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

func TestAProxyThatOnlyContainerdHasIsNamed(t *testing.T) {
	t.Parallel()
	of := func(pairs map[string]string) func(string) string {
		return func(name string) string { return pairs[name] }
	}
	const proxy = "http://user:s3cr3t@proxy.example.com:3128"
	named := "containerd has a proxy (proxy.example.com:3128, HTTPS_PROXY of containerd.service)"
	for title, c := range map[string]struct {
		theirs, own map[string]string
		file        string // /etc/sysconfig/proxy
		passes      string // how the variables of containerd begin
		want        string // empty: no finding
	}{
		"only containerd":       {theirs: map[string]string{"HTTPS_PROXY": proxy}, want: named},
		"in small letters":      {theirs: map[string]string{"https_proxy": proxy}, want: "https_proxy of containerd.service"},
		"nobody passes it on":   {theirs: map[string]string{"CONTAINERD_HTTPS_PROXY": proxy}},
		"as k3s passes it on":   {theirs: map[string]string{"CONTAINERD_HTTPS_PROXY": proxy}, passes: "CONTAINERD_", want: "CONTAINERD_HTTPS_PROXY of"},
		"no URL":                {theirs: map[string]string{"HTTP_PROXY": "s3cr3t"}, want: "(not a URL, HTTP_PROXY of"},
		"both":                  {theirs: map[string]string{"HTTPS_PROXY": proxy}, own: map[string]string{"HTTPS_PROXY": proxy}},
		"the agent's is SUSE's": {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=yes\nHTTPS_PROXY=http://p:1\n"},
		"SUSE's is off":         {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=no\nHTTPS_PROXY=http://p:1\n", want: named},
		"SUSE's is broken":      {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=yes\nHTTPS_PROXY=ftp://p\n", want: "HTTPS_PROXY: want the URL"},
		"only the agent":        {own: map[string]string{"HTTPS_PROXY": proxy}},
		"neither":               {},
	} {
		root := t.TempDir()
		if c.file != "" {
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/sysconfig"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "etc/sysconfig/proxy"), []byte(c.file), 0o600))
		}
		all := Node{Platform: platform.Platform{Root: root, ContainerdVariables: c.passes}}.
			proxyFindings("containerd.service", of(c.theirs), of(c.own))
		if c.want == "" {
			assert.Empty(t, all, title)
			continue
		}
		require.Len(t, all, 1, title)
		found(t, all[0], Warn, c.want, "/etc/sysconfig/proxy")
		assert.NotContains(t, all[0].Detail, "s3cr3t", title)
	}
}
