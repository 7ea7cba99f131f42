// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"crypto/tls"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

const good = `apiVersion: v1
kind: Config
current-context: admin
contexts:
- name: other
  context: {cluster: none, user: none}
- name: admin
  context: {cluster: c, user: u, namespace: n}
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443/", certificate-authority: ca.pem}
users:
- name: u
  user: {client-certificate: cert.pem, client-key: key.pem}
`

// node has a kubeconfig in a directory below a root, with files beside it.
type node struct{ root, dir, ca, cert, key string }

func newNode(t *testing.T) node {
	t.Helper()
	ca, cert, key := registrytest.Certificate(t)
	n := node{root: t.TempDir(), ca: registrytest.Text(t, ca), cert: registrytest.Text(t, cert), key: registrytest.Text(t, key)}
	n.dir = filepath.Join(n.root, "etc")
	require.NoError(t, os.Mkdir(n.dir, 0o755))
	for name, text := range map[string]string{"ca.pem": n.ca, "cert.pem": n.cert, "key.pem": n.key, "token": " secret\n", "empty": ""} {
		n.put(t, name, text)
	}
	return n
}

func (n node) put(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(n.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	data := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	withUser := func(user string) string {
		return strings.Replace(good, "{client-certificate: cert.pem, client-key: key.pem}", "{"+user+"}", 1)
	}
	withCluster := func(more string) string {
		return strings.Replace(good, "certificate-authority: ca.pem", more, 1)
	}
	for title, c := range map[string]struct {
		text  string
		check func(kubeconfig.Config)
		err   string
	}{
		"files beside it": {text: good, check: func(k kubeconfig.Config) {
			assert.Equal(t, "https://10.0.0.1:6443", k.Server)
			assert.Equal(t, "10.0.0.1:6443", k.Host())
			assert.Len(t, k.TLS.Certificates, 1)
			assert.NotNil(t, k.TLS.RootCAs)
			assert.Equal(t, uint16(tls.VersionTLS12), k.Transport().TLSClientConfig.MinVersion)
			assert.Empty(t, k.Token)
			assert.Nil(t, k.Transport().Proxy)
		}},
		"files by absolute path": {text: withUser("client-certificate: /etc/cert.pem, client-key: /etc/key.pem"), check: func(k kubeconfig.Config) { assert.Len(t, k.TLS.Certificates, 1) }},
		"data": {
			text:  withUser("client-certificate-data: " + data(n.cert) + ", client-certificate: none, client-key-data: " + data(n.key)),
			check: func(k kubeconfig.Config) { assert.Len(t, k.TLS.Certificates, 1) },
		},
		"token":               {text: withUser("token: a"), check: func(k kubeconfig.Config) { assert.Equal(t, "a", k.Token) }},
		"token file":          {text: withUser("token: a, tokenFile: token"), check: func(k kubeconfig.Config) { assert.Equal(t, "secret", k.Token) }},
		"no authority":        {text: withCluster("tls-server-name: api"), check: func(k kubeconfig.Config) { assert.Nil(t, k.TLS.RootCAs); assert.Equal(t, "api", k.TLS.ServerName) }},
		"proxy":               {text: withCluster("proxy-url: socks5://p:1"), check: func(k kubeconfig.Config) { assert.NotNil(t, k.Transport().Proxy) }},
		"exec is null":        {text: withUser("token: a, exec: null, auth-provider: ~"), check: func(k kubeconfig.Config) { assert.Equal(t, "a", k.Token) }},
		"without apiVersion":  {text: strings.Replace(good, "apiVersion: v1\nkind: Config\n", "", 1), check: func(kubeconfig.Config) {}},
		"not YAML":            {text: "{", err: "not a kubeconfig"},
		"another kind":        {text: strings.Replace(good, "kind: Config", "kind: Pod", 1), err: "want apiVersion v1 and kind Config"},
		"empty":               {text: "", err: "no current-context"},
		"another context":     {text: strings.Replace(good, "current-context: admin", "current-context: x", 1), err: `no context "x"`},
		"no cluster":          {text: strings.Replace(good, "current-context: admin", "current-context: other", 1), err: `no cluster "none"`},
		"no user":             {text: strings.Replace(good, "user: u,", "user: v,", 1), err: `no user "v"`},
		"one name twice":      {text: strings.Replace(good, "users:\n", "users:\n- {name: u, user: {token: a}}\n", 1), err: "share a name"},
		"exec":                {text: withUser("token: a, exec: {command: /bin/true}"), err: "exec: the agent does not run programs"},
		"auth-provider":       {text: withUser("auth-provider: {name: gcp}"), err: "auth-provider: the agent does not run programs"},
		"password":            {text: withUser("username: a, password: b"), err: "username and password"},
		"impersonation":       {text: withUser("token: a, as: b"), err: "as another user"},
		"impersonated groups": {text: withUser("token: a, as-groups: [b]"), err: "as another user"},
		"insecure":            {text: withCluster("insecure-skip-tls-verify: true"), err: "the server must be verified"},
		"http":                {text: strings.Replace(good, "https:", "http:", 1), err: "want a URL with https"},
		"ftp":                 {text: strings.Replace(good, "https:", "ftp:", 1), err: "want a URL with https"},
		"no scheme":           {text: strings.Replace(good, "https:", "", 1), err: "want a URL with https"},
		"a login in the URL":  {text: strings.Replace(good, "https://", "https://u:s3cr3t@", 1), err: "want a URL with https"},
		"a query in the URL":  {text: strings.Replace(good, ":6443/", ":6443/?s3cr3t", 1), err: "want a URL with https"},
		"impersonated uid":    {text: withUser("token: a, as-uid: b"), err: "as another user"},
		"impersonated extra":  {text: withUser("token: a, as-user-extra: {b: [c]}"), err: "as another user"},
		"one cluster twice":   {text: strings.Replace(good, "clusters:\n", "clusters:\n- {name: c, cluster: {server: 'https://a'}}\n", 1), err: "share a name"},
		"one context twice":   {text: strings.Replace(good, "contexts:\n", "contexts:\n- {name: admin, context: {cluster: c, user: u}}\n", 1), err: "share a name"},
		"no server":           {text: strings.Replace(good, "https://10.0.0.1:6443/", "", 1), err: "want a URL with https"},
		"ftp proxy":           {text: withCluster("proxy-url: ftp://p"), err: "want a URL with http, https or socks5"},
		"nobody":              {text: withUser(""), err: "no client certificate and no token"},
		"no key":              {text: withUser("client-certificate: cert.pem"), err: "no certificate with its key"},
		"empty key":           {text: withUser("client-certificate: cert.pem, client-key: empty"), err: "no certificate with its key"},
		"key of another":      {text: withUser("client-certificate: cert.pem, client-key: cert.pem"), err: "no certificate with its key"},
		"no base64":           {text: withUser("client-certificate-data: '?'"), err: "not a kubeconfig"},
		"missing certificate": {text: withUser("client-certificate: none, client-key: key.pem"), err: "client-certificate: " + n.dir + "/none: no such file"},
		"missing key":         {text: withUser("client-certificate: cert.pem, client-key: /none"), err: "client-key: " + n.root + "/none: no such file"},
		"missing authority":   {text: withCluster("certificate-authority: none"), err: "certificate-authority: " + n.dir + "/none"},
		"wrong authority":     {text: withCluster("certificate-authority: token"), err: "certificate-authority: no certificates"},
		"missing token file":  {text: withUser("token: a, tokenFile: none"), err: "tokenFile: " + n.dir + "/none"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			path := n.put(t, strings.ReplaceAll(title, " ", "-")+".conf", c.text)
			k, err := kubeconfig.Read(n.root, path)
			if c.err != "" {
				require.ErrorContains(t, err, "kubeconfig "+path+": ")
				require.ErrorContains(t, err, c.err)
				assert.NotContains(t, err.Error(), "s3cr3t")
				assert.Equal(t, kubeconfig.Config{}, k)
				return
			}
			require.NoError(t, err)
			c.check(k)
		})
	}
	_, err := kubeconfig.Read(n.root, n.dir+"/none.conf")
	require.ErrorContains(t, err, "none.conf: no such file")
}
