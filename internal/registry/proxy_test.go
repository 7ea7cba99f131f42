// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// tinyproxy is a running forward proxy with a password.
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

// /etc/sysconfig/proxy is added, changed and removed while polls go on, with TLS (CONNECT) and without.
func TestARealProxy(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	_, port, err := net.SplitHostPort(startDistribution(t, cert, key))
	require.NoError(t, err)
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	_, plainPort, err := net.SplitHostPort(f.host())
	require.NoError(t, err)
	// A proxy is never used for loopback; 0.0.0.0 reaches the same listener.
	secure, plainHost := "0.0.0.0:"+port, "0.0.0.0:"+plainPort
	certs := certsD(t, secure, "server = \"https://"+secure+"\"\nca = \""+ca+"\"\n")
	addNamespace(t, certs, plainHost, plainHTTP(plainHost))
	proxy := startTinyproxy(t)
	root := t.TempDir()
	logged := new(bytes.Buffer)
	r, _ := newRegistry(t, certs, func(o *Options) {
		o.Proxy = hosts.NewProxies(root, environ()).For
		o.Log = slog.New(slog.NewTextHandler(logged, nil))
	})
	errors := ""
	poll := func(want string) {
		t.Helper()
		_, err := r.Resolve(t.Context(), release.Reference{Repository: secure + "/app", Tag: "1"})
		require.ErrorContains(t, err, want)
		errors += err.Error()
		_, err = r.Resolve(t.Context(), release.Reference{Repository: plainHost + "/app", Tag: "1"})
		if want == "404" {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		errors += err.Error()
	}
	settings := func(enabled, url, no string) {
		put(t, root, "etc/sysconfig/proxy", fmt.Sprintf("PROXY_ENABLED=%q\nHTTP_PROXY=%q\nHTTPS_PROXY=%q\nNO_PROXY=%q\n", enabled, url, url, no))
	}
	poll("404")
	assert.Zero(t, proxy.said("Request (file"), "no file, no proxy")

	settings("yes", proxy.url, "localhost, 127.0.0.1")
	poll("404")
	poll("404")
	// The test reads its log beside the answers.
	require.Eventually(t, func() bool { return proxy.said("CONNECT "+secure) > 0 }, time.Minute, time.Millisecond)
	head := "HEAD http://" + plainHost + "/v2/app/manifests/1" // a tunnel that came too late to be used may be requested at any time
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
	require.NoError(t, os.Remove(filepath.Join(root, "etc/sysconfig/proxy")))
	poll("404")
	assert.NotContains(t, errors+logged.String(), secret)
}
