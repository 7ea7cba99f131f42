// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/node"
	agentquorum "github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a control plane whose parts want a client certificate of its authority, and a node of it.
type cluster struct {
	t             *testing.T
	root          string
	ca, cert, key string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ca, cert, key := registrytest.Certificate(t)
	c := &cluster{t: t, root: t.TempDir(), ca: registrytest.Text(t, ca), cert: registrytest.Text(t, cert), key: registrytest.Text(t, key)}
	for name, text := range map[string]string{"ca.crt": c.ca, "a.crt": c.cert, "a.key": c.key} {
		registrytest.Put(t, c.root, "/pki/"+name, text)
	}
	return c
}

// serve serves by TLS, and returns host:port.
func (c *cluster) serve(h http.HandlerFunc) string {
	c.t.Helper()
	pair, err := tls.X509KeyPair([]byte(c.cert), []byte(c.key))
	require.NoError(c.t, err)
	pool := x509.NewCertPool()
	require.True(c.t, pool.AppendCertsFromPEM([]byte(c.ca)))
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	s.StartTLS()
	c.t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://")
}

// etcd answers as a member: with a list of members by name, where it is asked with a certificate, and with its health.
func (c *cluster) etcd(healthy bool, members func() map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "no certificate", http.StatusUnauthorized)
			return
		}
		switch r.Method + " " + r.URL.Path {
		case "POST /v3/cluster/member/list":
			var list []string
			for name, at := range members() {
				urls := ""
				if at != "" {
					urls = `"https://` + at + `"`
				}
				list = append(list, fmt.Sprintf(`{"name": %q, "peerURLs": ["https://peer-%s"], "clientURLs": [%s]}`, name, name, urls))
			}
			_, _ = io.WriteString(w, `{"members": [`+strings.Join(list, ",")+`]}`)
		case "GET /health":
			if !healthy {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"health":"false","reason":"RAFT NO LEADER"}`)
				return
			}
			_, _ = io.WriteString(w, `{"health":"true","reason":""}`)
		default:
			http.NotFound(w, r)
		}
	}
}

func manifest(name string, flags ...string) node.PodFile {
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: " + name +
		"\n    image: example.com/" + name + ":1\n    command:\n    - " + name + "\n"
	for _, f := range flags {
		text += "    - " + f + "\n"
	}
	return node.PodFile{Name: name + ".yaml", Data: []byte(text)}
}

func (c *cluster) etcdManifest(name, at string, more ...string) node.PodFile {
	return manifest("etcd", append([]string{
		"--name=" + name, "--listen-client-urls=https://" + at, "--trusted-ca-file=/pki/ca.crt", "--cert-file=/pki/a.crt",
		"--key-file=/pki/a.key",
	}, more...)...)
}

func (c *cluster) observe(files ...node.PodFile) agentquorum.Observation {
	c.t.Helper()
	return quorum.Control{Root: c.root}.Observe(c.t.Context(), files)
}

func TestMembersOfEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	members := map[string]string{}
	list := func() map[string]string { return members }
	at := c.serve(c.etcd(true, list))
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"health":"true"}`) }))
	t.Cleanup(metrics.Close)
	members["a"], members["b"] = at, c.serve(c.etcd(true, list))
	own := c.etcdManifest("a", at, "--listen-metrics-urls="+metrics.URL)

	seen := c.observe(own)
	require.NoError(t, seen.Err)
	assert.ElementsMatch(t, []agentquorum.Part{
		{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Healthy: true},
	}, seen.Members)
	assert.Empty(t, agentquorum.Against(seen, false))

	members["b"], members["c"], members["d"] = c.serve(c.etcd(false, list)), "127.0.0.1:1", ""
	against := agentquorum.Against(c.observe(own), false)
	assert.Contains(t, against, "etcd member b: "+members["b"]+`: 503: {"health":"false","reason":"RAFT NO LEADER"}`)
	assert.Contains(t, against, "etcd member c: 127.0.0.1:1: ")
	assert.Contains(t, against, "connection refused")
	assert.Contains(t, against, "etcd member d: not started")

	// A node whose API server uses an etcd elsewhere asks with the certificates of that.
	delete(members, "b")
	delete(members, "c")
	delete(members, "d")
	api := manifest("kube-apiserver", "--etcd-servers=https://127.0.0.1:1,https://"+at, "--etcd-cafile=/pki/ca.crt",
		"--etcd-certfile=/pki/a.crt", "--etcd-keyfile", "/pki/a.key")
	seen = c.observe(api)
	require.NoError(t, seen.Err)
	assert.Equal(t, []agentquorum.Part{{Name: "etcd member a", Healthy: true}}, seen.Members)
}

// A list of members that cannot be read holds: nobody knows what is healthy.
func TestMembersThatAreNotKnown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	many := map[string]string{}
	for n := range 40 {
		many[fmt.Sprint(n)] = "127.0.0.1:1"
	}
	for title, answer := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"garbage":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff}) }, "no list of members"},
		"empty":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, "no list of members"},
		"endless":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", 1<<20)) }, "too large"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302"},
		"many":      {c.etcd(true, func() map[string]string { return many }), "more than 32 members"},
		"no quorum": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "etcdserver: no leader\nx", http.StatusServiceUnavailable)
		}, "503: etcdserver: no leader"},
	} {
		seen := c.observe(c.etcdManifest("a", c.serve(answer.h)))
		require.ErrorContains(t, seen.Err, answer.want, title)
		assert.NotEmpty(t, agentquorum.Against(seen, true), title)
	}
	require.NoError(t, os.Remove(filepath.Join(c.root, "pki/a.key")))
	seen := c.observe(c.etcdManifest("a", "127.0.0.1:1"))
	require.EqualError(t, seen.Err, "/pki/a.key: no such file or directory")
	assert.Empty(t, c.observe(manifest("etcd")), "a pod manifest without flags says nothing")
	assert.Empty(t, c.observe(node.PodFile{Name: "x.yaml", Data: []byte("{")}))
	assert.Empty(t, c.observe())
}

// etcd 3.3 serves its list at another path.
func TestMembersOfOldEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	at := ""
	at = c.serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v3beta/cluster/member/list":
			_, _ = io.WriteString(w, `{"members": [{"name": "a", "clientURLs": ["https://`+at+`"]}]}`)
		case "/health":
			_, _ = io.WriteString(w, `{"health": "true"}`)
		default:
			http.NotFound(w, r)
		}
	})
	assert.Equal(t, []agentquorum.Part{{Name: "etcd member a", Local: true, Healthy: true}}, c.observe(c.etcdManifest("a", at)).Members)
}

// apiServer answers with its readiness, and names the addresses to those with the token.
func apiServer(ready bool, addresses func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			if !ready {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed\nreadyz check failed\n")
			}
		case "/api/v1/namespaces/default/endpoints/kubernetes":
			if r.Header.Get("Authorization") != "Bearer secret" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			var subsets []string
			for _, at := range addresses() {
				ip, port, _ := strings.Cut(at, ":")
				subsets = append(subsets, fmt.Sprintf(`{"addresses": [{"ip": %q}], "ports": [{"name": "https", "port": %s}]}`, ip, port))
			}
			_, _ = io.WriteString(w, `{"subsets": [`+strings.Join(subsets, ",")+`]}`)
		default:
			http.NotFound(w, r)
		}
	}
}

func (c *cluster) kubeconfig(name, server, token string) {
	registrytest.Put(c.t, c.root, "/etc/kubernetes/"+name, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://`+server+`", certificate-authority-data: `+
		base64.StdEncoding.EncodeToString([]byte(c.ca))+`}}]
users: [{name: u, user: {token: `+token+`}}]
`)
}

func TestAPIServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var addresses []string
	list := func() []string { return addresses }
	local, good, bad := c.serve(apiServer(true, list)), c.serve(apiServer(true, list)), c.serve(apiServer(false, list))
	addresses = []string{local, good}
	ip, port, _ := strings.Cut(local, ":")
	own := manifest("kube-apiserver", "--advertise-address="+ip, "--secure-port="+port, "--client-ca-file=/pki/ca.crt", "--tls-cert-file=/pki/a.crt")
	healthy := func(at string, local bool) agentquorum.Part {
		return agentquorum.Part{Name: "API server " + at, Local: local, Healthy: true}
	}
	assert.Equal(t, []agentquorum.Part{healthy(local, true)}, c.observe(own).Servers, "without a kubeconfig only its own")
	c.kubeconfig("kubelet.conf", good, "another")
	assert.Equal(t, []agentquorum.Part{healthy(local, true)}, c.observe(own).Servers, "kubelet may not list them")
	c.kubeconfig("admin.conf", good, "secret")
	assert.Equal(t, []agentquorum.Part{healthy(local, true), healthy(good, false)}, c.observe(own).Servers)
	addresses = append(addresses, bad)
	assert.Equal(t, "API server "+bad+": 500: [-]etcd failed: reason withheld, [-]informer-sync failed",
		agentquorum.Against(c.observe(own), true))
	c.kubeconfig("admin.conf", "127.0.0.1:1", "secret")
	assert.Contains(t, agentquorum.Against(c.observe(own), true), "API servers of other nodes: 127.0.0.1:1: ")
	registrytest.Put(t, c.root, "/etc/kubernetes/admin.conf", "token: secret\n")
	require.NoError(t, os.Remove(filepath.Join(c.root, "etc/kubernetes/kubelet.conf")))
	against := agentquorum.Against(c.observe(own), true)
	assert.Contains(t, against, "/etc/kubernetes/admin.conf: no kubeconfig with server")
	assert.NotContains(t, against, "secret")
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("kind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: etcd, command: [etcd, --name, a, '--x=y']}]}\n"))
	f.Add([]byte("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a'}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		quorum.FlagsOf([]node.PodFile{{Data: data}}, "etcd")
		if _, err := quorum.ParseKubeconfig(t.TempDir(), data); err != nil {
			assert.NotContains(t, err.Error(), "\n")
		}
	})
}
