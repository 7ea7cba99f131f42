// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sysconfig = "etc/sysconfig/proxy"

// The sources of the settings, and the proxy of a request.
func TestProxyOfARequest(t *testing.T) {
	t.Parallel()
	const file = "# a comment\nPROXY_ENABLED=\"yes\"\nHTTP_PROXY='http://plain:1'\nexport HTTPS_PROXY=tls:2 # why\n" +
		"FTP_PROXY=\"http://ftp:3\"\nNO_PROXY=\"localhost, .cluster.local,10.0.0.0/8,direct.org:444\"\n"
	const far, farPlain = "https://registry.suse.com/v2/", "http://registry.suse.com/v2/"
	settings := []struct {
		title, file string
		env         []string
		url, want   string
	}{
		{"nothing", "", nil, far, ""},
		{"file, https", file, nil, far, "http://tls:2"},
		{"file, http", file, nil, farPlain, "http://plain:1"},
		{"no proxy for a domain", file, nil, "https://dashboard.cluster.local/", ""},
		{"no proxy for a network", file, nil, "https://10.1.2.3:5000/", ""},
		{"no proxy for a port", file, nil, "https://direct.org:444/", ""},
		{"but another one", file, nil, "https://direct.org/", "http://tls:2"},
		{"localhost", file, nil, "https://localhost:5000/", ""},
		{"disabled", strings.Replace(file, "yes", "no", 1), nil, far, ""},
		{"not enabled", strings.Replace(file, "PROXY_ENABLED", "#PROXY_ENABLED", 1), nil, far, ""},
		{"only no proxy", "PROXY_ENABLED=yes\nNO_PROXY=x\n", nil, far, ""},
		{"environment over file", file, []string{"HTTPS_PROXY", "http://env:4"}, far, "http://env:4"},
		{"lower case", file, []string{"https_proxy", "http://env:4"}, far, "http://env:4"},
		{"environment's no proxy", file, []string{"HTTPS_PROXY", "http://env:4", "NO_PROXY", "suse.com"}, far, ""},
		{"enabled in the environment", "", []string{"HTTPS_PROXY", "http://env:4", "PROXY_ENABLED", "yes"}, far, "http://env:4"},
		{"disabled in the environment", "", []string{"HTTPS_PROXY", "http://env:4", "PROXY_ENABLED", "no"}, far, ""},
		{"there, and enabled in the file", file, []string{"HTTPS_PROXY", "http://env:4", "PROXY_ENABLED", "no"}, far, "http://tls:2"},
		{"socks", "", []string{"HTTPS_PROXY", "socks5://env:4"}, far, "socks5://env:4"},
	}
	for _, s := range settings {
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if s.file != "" {
				put(t, root, sysconfig, s.file)
			}
			got, err := NewProxies(root, environ(s.env...)).For(&http.Request{URL: parsed(t, s.url)})
			require.NoError(t, err)
			if s.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, s.want, fmt.Sprint(got))
		})
	}
}

// If the proxy is unknown, no request bypasses it, and no error contains its password.
func TestProxyThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"http://u:" + secret + "@%zz", "ftp://u:" + secret + "@proxy", "http://", "http://u:" + secret + "@proxy:x"} {
		root := t.TempDir()
		put(t, root, sysconfig, "PROXY_ENABLED=yes\nHTTPS_PROXY="+text+"\n")
		for _, p := range []*Proxies{NewProxies(root, environ()), NewProxies(t.TempDir(), environ("HTTP_PROXY", text))} {
			_, err := p.For(&http.Request{URL: parsed(t, "https://registry.suse.com/")})
			require.ErrorIs(t, err, errNoProxyURL, text)
			assert.NotContains(t, err.Error(), secret)
		}
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, sysconfig), 0o700))
	_, err := NewProxies(root, environ()).For(&http.Request{URL: parsed(t, "https://registry.suse.com/")})
	require.ErrorContains(t, err, "not a regular file")
}

func FuzzProxyFile(f *testing.F) {
	f.Add([]byte("PROXY_ENABLED=\"yes\"\nHTTP_PROXY=\"http://a:1\"\nNO_PROXY='b, c'\n"))
	f.Add([]byte("export HTTPS_PROXY=\"\nPROXY_ENABLED=yes\n="))
	f.Fuzz(func(t *testing.T, data []byte) {
		choose, err := parseProxyFile(data)
		if err != nil {
			require.ErrorIs(t, err, errNoProxyURL)
		}
		if choose == nil {
			return
		}
		assert.Contains(t, strings.ToLower(string(data)), "yes", "nothing else turns it on")
		_, err = choose(parsed(t, "https://registry.suse.com/"))
		require.NoError(t, err)
	})
}

func parsed(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}
