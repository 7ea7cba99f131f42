// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

const sysconfig = "etc/sysconfig/proxy"

// Where the settings stand, and which proxy a request then takes.
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
			got, err := NewProxies(root, environ(s.env...)).For(&http.Request{URL: mustURL(t, s.url)})
			require.NoError(t, err)
			if s.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, s.want, fmt.Sprint(got))
		})
	}
}

// Where nobody can make out the proxy, nothing is asked past it, and no error
// has its password.
func TestProxyThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"http://u:" + secret + "@%zz", "ftp://u:" + secret + "@proxy", "http://", "http://u:" + secret + "@proxy:x"} {
		root := t.TempDir()
		put(t, root, sysconfig, "PROXY_ENABLED=yes\nHTTPS_PROXY="+text+"\n")
		for _, p := range []*Proxies{NewProxies(root, environ()), NewProxies(t.TempDir(), environ("HTTP_PROXY", text))} {
			_, err := p.For(&http.Request{URL: mustURL(t, "https://registry.suse.com/")})
			require.ErrorIs(t, err, errNoProxyURL, text)
			assert.NotContains(t, err.Error(), secret)
		}
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, sysconfig), 0o700))
	_, err := NewProxies(root, environ()).For(&http.Request{URL: mustURL(t, "https://registry.suse.com/")})
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
		_, err = choose(mustURL(t, "https://registry.suse.com/"))
		require.NoError(t, err)
	})
}

// tinyproxy is a running forward proxy that wants a password.
type tinyproxy struct {
	url string
	mu  sync.Mutex
	log bytes.Buffer
}

func (p *tinyproxy) said(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.log.String(), text)
}

func startTinyproxy(t testing.TB) *tinyproxy {
	t.Helper()
	binary, err := exec.LookPath("tinyproxy")
	require.NoError(t, err, "install the package tinyproxy")
	addr := deadHost(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	root := t.TempDir()
	put(t, root, "conf", "Listen 127.0.0.1\nPort "+port+"\nMaxClients 20\nLogLevel Info\nBasicAuth u "+secret+"\n")
	cmd := exec.Command(binary, "-d", "-c", filepath.Join(root, "conf"))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &tinyproxy{url: "http://u:" + secret + "@" + addr}
	read, ready := make(chan struct{}), make(chan struct{}, 1)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			_, _ = p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			if strings.Contains(lines.Text(), "Accepting connections") {
				ready <- struct{}{}
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case <-ready:
	case <-read:
		require.FailNow(t, "tinyproxy ended", p.log.String())
	}
	return p
}

// /etc/sysconfig/proxy comes into force, changes and goes while polls go on,
// with TLS (CONNECT) and without.
func TestARealProxy(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	_, port, err := net.SplitHostPort(startDistribution(t, cert, key))
	require.NoError(t, err)
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	_, plainPort, err := net.SplitHostPort(f.host())
	require.NoError(t, err)
	// For loopback no proxy is ever used; 0.0.0.0 leads to the same listener.
	secure, plainHost := "0.0.0.0:"+port, "0.0.0.0:"+plainPort
	hosts := certsD(t, secure, "server = \"https://"+secure+"\"\nca = \""+ca+"\"\n")
	addNamespace(t, hosts, plainHost, plainHTTP(plainHost))
	proxy := startTinyproxy(t)
	root := t.TempDir()
	logged := new(bytes.Buffer)
	r, _ := newRegistry(t, hosts, func(o *Options) {
		o.Proxy = NewProxies(root, environ()).For
		o.Log = slog.New(slog.NewTextHandler(logged, nil))
	})
	errors := ""
	poll := func(want string) {
		t.Helper()
		_, err := r.Resolve(t.Context(), agent.Reference{Repository: secure + "/app", Tag: "1"})
		require.ErrorContains(t, err, want)
		errors += err.Error()
		_, err = r.Resolve(t.Context(), agent.Reference{Repository: plainHost + "/app", Tag: "1"})
		if want == "404" {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		errors += err.Error()
	}
	settings := func(enabled, url, no string) {
		put(t, root, sysconfig, fmt.Sprintf("PROXY_ENABLED=%q\nHTTP_PROXY=%q\nHTTPS_PROXY=%q\nNO_PROXY=%q\n", enabled, url, url, no))
	}
	poll("404")
	assert.Zero(t, proxy.said("Request (file"), "no file, no proxy")

	settings("yes", proxy.url, "localhost, 127.0.0.1")
	poll("404")
	poll("404")
	assert.Positive(t, proxy.said("CONNECT "+secure))
	head := "HEAD http://" + plainHost + "/v2/app/manifests/1" // a tunnel that came too late to be used may be asked for at any time
	require.Eventually(t, func() bool { return proxy.said(head) == 2 }, time.Minute, time.Millisecond)

	settings("no", proxy.url, "")
	poll("404")
	settings("yes", proxy.url, "0.0.0.0")
	poll("404")
	assert.Equal(t, 2, proxy.said(head), "disabled, and not for this host")

	settings("yes", strings.Replace(proxy.url, secret, secret+"x", 1), "")
	poll("Unauthorized") // 401, where others send 407
	settings("yes", "http://u:"+secret+"@"+deadHost(t), "")
	poll("connection refused")
	settings("yes", "http://u:"+secret+"@%zz", "")
	poll("want the URL of a proxy")
	require.NoError(t, os.Remove(filepath.Join(root, sysconfig)))
	poll("404")
	assert.NotContains(t, errors+logged.String(), secret)
}
