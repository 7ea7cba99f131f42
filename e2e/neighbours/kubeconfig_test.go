// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// kubeconfigs is how many random kubeconfigs are compared.
const kubeconfigs = 3000

// clientcmdReading is how client-go reads a kubeconfig. Others are ways to log in, or not to check the server, which the
// agent does not have.
type clientcmdReading struct {
	Refused                         bool
	Host, ServerName                string
	Authorities, Certificate, Proxy bool
	Token, TokenFile                string
	Others                          bool
}

// A kubeconfig that the agent accepts leads kubectl's own code (clientcmd) to the same server, with the same
// authorities, name, certificate, token and proxy. What clientcmd refuses, the agent refuses.
func TestKubeconfigMatchesClientcmd(t *testing.T) {
	t.Parallel()
	rounds, r := inputs(t, kubeconfigs)
	ca, cert, key := registrytest.Certificate(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ca": registrytest.Text(t, ca), "cert": registrytest.Text(t, cert), "key": registrytest.Text(t, key), "token": "from-a-file\n",
	} {
		registrytest.Put(t, dir, name, text)
	}
	data := func(name string) string {
		return base64.StdEncoding.EncodeToString([]byte(registrytest.Text(t, filepath.Join(dir, name))))
	}
	var hides []string
	for _, name := range []string{"ca", "cert", "key"} {
		hides = append(hides, registrytest.Text(t, filepath.Join(dir, name)), name, data(name), name+" in base64")
	}
	judge := newJudge(t, "kubeconfig", required(t, "k8s.io/client-go"))
	judge.live = askedClientcmd(t, filepath.Join(dir, "kubeconfig"))
	accepted, refused := 0, 0
	for n := range rounds {
		text := kubeconfigText(r, dir, data)
		path := filepath.Join(dir, "kubeconfig")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := kubeconfig.Read("/", path)
		var theirs clientcmdReading
		judge.ask("", &theirs, input{dirs: []string{dir}, hides: hides})
		if err != nil {
			refused++
			continue
		}
		accepted++
		require.False(t, theirs.Refused, "%d: the agent accepts what clientcmd refuses:\n%s", n, text)
		assert.Equal(t, strings.TrimRight(theirs.Host, "/"), got.Server, text)
		assert.Equal(t, theirs.ServerName, got.TLS.ServerName, text)
		assert.Equal(t, theirs.Authorities, got.TLS.RootCAs != nil, text)
		assert.Equal(t, theirs.Certificate, len(got.TLS.Certificates) == 1, text)
		token := theirs.Token
		if theirs.TokenFile != "" { // client-go reads it for each request
			token = strings.TrimSpace(registrytest.Text(t, theirs.TokenFile))
		}
		assert.Equal(t, token, got.Token, text)
		assert.Equal(t, theirs.Proxy, got.Proxy != nil, text)
		assert.False(t, theirs.Others, text)
	}
	t.Logf("%d kubeconfigs: %d accepted, %d refused", rounds, accepted, refused)
	assert.Greater(t, accepted, rounds/20)
	assert.Greater(t, refused, rounds/10)
}

// kubeconfigText returns a random kubeconfig, in which each part is mostly usable.
func kubeconfigText(r *rand.Rand, dir string, data func(string) string) string {
	pick := func(of ...string) string { return oneOf(r, of...) }
	maybe := func(chance int, text string) string {
		if r.IntN(chance) == 0 {
			return text
		}
		return ""
	}
	cluster := []string{"server: " + pick("https://a:6443", "https://b", "https://c/base/", `"https://[::1]:6443"`, "http://d", "e:6443", `""`)}
	cluster = append(cluster, pick("", "certificate-authority: ca", "certificate-authority: "+dir+"/ca",
		"certificate-authority-data: "+data("ca"), "certificate-authority: none"))
	cluster = append(cluster, maybe(4, "tls-server-name: x"), maybe(12, "insecure-skip-tls-verify: "+pick("true", "false")),
		maybe(6, "proxy-url: "+pick("http://p:1", "socks5://p:1", "ftp://p", "':'")), maybe(8, "unknown: 1"))
	user := []string{
		pick("", "client-certificate: cert, client-key: key", "client-certificate-data: "+data("cert")+", client-key-data: "+data("key"),
			"client-certificate: cert, client-key-data: "+data("key"), "client-certificate: cert", "client-certificate: none, client-key: key"),
		maybe(3, "token: "+pick("abc", `""`)), maybe(4, "tokenFile: "+pick("token", dir+"/token", "none")),
		maybe(12, "username: u, password: p"), maybe(16, "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}"),
		maybe(16, "auth-provider: {name: x}"), maybe(16, "as: y"),
	}
	flow := func(parts []string) string {
		var out []string
		for _, p := range parts {
			if p != "" {
				out = append(out, p)
			}
		}
		return "{" + strings.Join(out, ", ") + "}"
	}
	return fmt.Sprintf("%scurrent-context: %s\ncontexts:\n- {name: c, context: {cluster: %s, user: %s}}\n- {name: d, context: {cluster: k, user: u}}\n"+
		"%sclusters:\n- {name: k, cluster: %s}\nusers:\n- {name: u, user: %s}\n",
		pick("", "apiVersion: v1\nkind: Config\n", "apiVersion: v1\nkind: Config\npreferences: {}\n"), pick("c", "c", "c", "d", "x"),
		pick("k", "k", "k", "l"), pick("u", "u", "u", "v"), maybe(10, "- {name: c, context: {}}\n"), flow(cluster), flow(user))
}
