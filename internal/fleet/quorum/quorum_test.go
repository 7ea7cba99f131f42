// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// kubeconfigs are those that are looked for.
var kubeconfigs = platform.Detect("").Kubeconfigs

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a control plane whose parts require a client certificate of its authority, and a node of it.
type cluster struct {
	t             *testing.T
	root          string
	ca, cert, key string
}

func newCluster(t *testing.T, more ...net.IP) *cluster {
	t.Helper()
	ca, cert, key := registrytest.Certificate(t, func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, more...) })
	c := &cluster{t: t, root: t.TempDir(), ca: registrytest.Text(t, ca), cert: registrytest.Text(t, cert), key: registrytest.Text(t, key)}
	for name, text := range map[string]string{"ca.crt": c.ca, "a.crt": c.cert, "a.key": c.key} {
		registrytest.Put(t, c.root, "/pki/"+name, text)
	}
	return c
}

// serve serves over TLS and returns host:port.
func (c *cluster) serve(h http.HandlerFunc) string {
	c.t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = c.tls(tls.VerifyClientCertIfGiven)
	s.StartTLS()
	c.t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://")
}

// tls returns the configuration of a server of the cluster.
func (c *cluster) tls(auth tls.ClientAuthType) *tls.Config {
	c.t.Helper()
	pair, err := tls.X509KeyPair([]byte(c.cert), []byte(c.key))
	require.NoError(c.t, err)
	pool := x509.NewCertPool()
	require.True(c.t, pool.AppendCertsFromPEM([]byte(c.ca)))
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: pool}
}

// fakeEtcd is an etcd whose members have separate servers.
type fakeEtcd struct {
	c       *cluster
	id      uint64
	members []*fakeMember
}

// fakeMember answers gRPC calls as one member. The zero value is healthy.
type fakeMember struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedKVServer
	etcd *fakeEtcd
	*pb.Member
	at           string // host:port; empty if it is not running
	leaderless   bool
	alarms       []string
	readErr      error
	listErr      error
	hidden       bool // not in the list
	bearsAnother uint64
}

// add serves another member over TLS, for clients with a certificate of the authority.
func (e *fakeEtcd) add(name string) *fakeMember {
	e.c.t.Helper()
	m := &fakeMember{etcd: e, Member: &pb.Member{ID: uint64(len(e.members) + 100), Name: name, PeerURLs: []string{"https://peer-" + name + ":2380"}}}
	e.members = append(e.members, m)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(e.c.t, err)
	m.at = l.Addr().String()
	m.ClientURLs = []string{"https://" + m.at}
	m.serve(e.c.t, l, grpc.Creds(credentials.NewTLS(e.c.tls(tls.RequireAndVerifyClientCert))))
	return m
}

func (m *fakeMember) serve(t *testing.T, l net.Listener, options ...grpc.ServerOption) {
	s := grpc.NewServer(options...)
	pb.RegisterClusterServer(s, m)
	pb.RegisterMaintenanceServer(s, m)
	pb.RegisterKVServer(s, m)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

func (m *fakeMember) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: m.etcd.id, MemberId: m.ID + m.bearsAnother}
}

func (m *fakeMember) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	assert.True(m.etcd.c.t, r.Linearizable)
	out := &pb.MemberListResponse{Header: m.header()}
	for _, one := range m.etcd.members {
		if !one.hidden {
			out.Members = append(out.Members, one.Member)
		}
	}
	return out, m.listErr
}

func (m *fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s := &pb.StatusResponse{Header: m.header(), Leader: 100, Errors: m.alarms}
	if m.leaderless {
		s.Leader = 0
	}
	return s, nil
}

func (m *fakeMember) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	assert.Equal(m.etcd.c.t, "health", string(r.Key))
	assert.False(m.etcd.c.t, r.Serializable)
	return &pb.RangeResponse{Header: m.header()}, m.readErr
}

func (c *cluster) etcd(names ...string) *fakeEtcd {
	c.t.Helper()
	e := &fakeEtcd{c: c, id: 7}
	for _, name := range names {
		e.add(name)
	}
	return e
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

func (c *cluster) observe(files ...node.PodFile) fleet.Observation {
	c.t.Helper()
	return quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root}.Observe(c.t.Context(), files)
}

func part(name string, local bool) fleet.Part {
	return fleet.Part{Name: "etcd member " + name, Local: local, Healthy: true}
}

func TestMembersOfEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a", "b")
	a, b := e.members[0], e.members[1]
	own := c.etcdManifest("a", a.at)
	seen := c.observe(own)
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{part("a", true), part("b", false)}, seen.Members)
	assert.Empty(t, fleet.Against(seen, false))

	b.leaderless = true
	for _, more := range []*pb.Member{{ID: 1, Name: "c", ClientURLs: []string{"https://127.0.0.1:1"}}, {ID: 2}} {
		e.members = append(e.members, &fakeMember{etcd: e, Member: more})
	}
	assert.Equal(t, "etcd member b: "+b.at+": it has no leader; etcd member c: 127.0.0.1:1: connection refused; etcd member 2: not started",
		fleet.Against(c.observe(own), false))

	// A node whose API server uses an external etcd calls that with the API server's certificates.
	b.leaderless, e.members = false, e.members[:2]
	api := manifest("kube-apiserver", "--etcd-servers=https://127.0.0.1:1,https://"+a.at, "--etcd-cafile=/pki/ca.crt",
		"--etcd-certfile=/pki/a.crt", "--etcd-keyfile", "/pki/a.key")
	seen = c.observe(api)
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{part("a", false), part("b", false)}, seen.Members)
	assert.Equal(t, []fleet.Part{part("a", true), part("b", false)}, c.observe(own, api).Members, "it is the same etcd")
	other := c.etcd("x")
	other.id = 8
	assert.Equal(t, []fleet.Part{part("a", true), part("b", false), part("x", true)},
		c.observe(own, rename(c.etcdManifest("x", other.members[0].at), "events")).Members, "every etcd is read")
}

// rename gives a pod manifest another name, which must not matter.
func rename(f node.PodFile, name string) node.PodFile {
	f.Name = name + ".yaml"
	f.Data = []byte(strings.Replace(string(f.Data), "metadata:\n  name: etcd", "metadata:\n  name: "+name, 1))
	return f
}

// A member's own answer decides whether it is healthy. None of its text is passed on.
func TestUnhealthyMember(t *testing.T) {
	t.Parallel()
	const evil = "SECRET: http://evil.example/?x"
	for title, one := range map[string]struct {
		change func(b *fakeMember)
		want   string
	}{
		"no leader":       {func(b *fakeMember) { b.leaderless = true }, "it has no leader"},
		"an alarm":        {func(b *fakeMember) { b.alarms = []string{"memberID:1 alarm:NOSPACE " + evil} }, "alarm NOSPACE"},
		"another error":   {func(b *fakeMember) { b.alarms = []string{evil} }, "it reports an error"},
		"a fault":         {func(b *fakeMember) { b.readErr = status.Error(codes.Internal, evil) }, "gRPC code Internal"},
		"not permitted":   {func(b *fakeMember) { b.readErr = status.Error(codes.PermissionDenied, evil) }, "gRPC code PermissionDenied"},
		"another answers": {func(b *fakeMember) { b.bearsAnother = 1 }, "another member answers"},
		"known to etcd":   {func(b *fakeMember) { b.readErr = rpctypes.ErrGRPCPermissionDenied }, "gRPC code PermissionDenied"},
	} {
		c := newCluster(t)
		e := c.etcd("a", "b")
		one.change(e.members[1])
		assert.Equal(t, "etcd member b: "+e.members[1].at+": "+one.want,
			fleet.Against(c.observe(c.etcdManifest("a", e.members[0].at)), false), title)
	}
}

// A member whose certificate is from another authority, or for another name, gets no request; nor one that rejects this
// node's certificate.
func TestCertificatesOfMembersAreVerified(t *testing.T) {
	t.Parallel()
	c, other := newCluster(t), newCluster(t)
	e := c.etcd("a")
	for title, one := range map[string]struct{ at, want string }{
		"another authority": {other.etcd("b").members[0].at, "its certificate is signed by an unknown authority"},
		"another name":      {strings.Replace(c.etcd("b").members[0].at, "127.0.0.1", "localhost", 1), "its certificate is for another name"},
	} {
		e.members = append(e.members[:1], &fakeMember{etcd: e, Member: &pb.Member{ID: 9, Name: "b", ClientURLs: []string{"https://" + one.at}}})
		assert.Equal(t, "etcd member b: "+one.at+": "+one.want, fleet.Against(c.observe(c.etcdManifest("a", e.members[0].at)), false), title)
	}
	none := manifest("etcd", "--listen-client-urls=https://"+e.members[0].at, "--trusted-ca-file=/pki/ca.crt")
	require.ErrorContains(t, c.observe(none).Err, "it closes each connection")
}

// This node's member is the one that answers at the address of its etcd: a dead one may have its name, and another may
// claim to be on localhost.
func TestMemberOfThisNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a", "a")
	mine := e.members[0]
	e.members[1].at, e.members[1].ClientURLs = "", []string{"https://127.0.0.1:1"}
	e.members = append(e.members, &fakeMember{etcd: e, Member: &pb.Member{ID: 9, Name: "c", ClientURLs: []string{"https://" + mine.at}}})
	seen := c.observe(c.etcdManifest("a", mine.at))
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{
		part("a", true),
		{Name: "etcd member a", Seen: "127.0.0.1:1: connection refused"},
		{Name: "etcd member c", Seen: mine.at + ": another member answers"},
	}, seen.Members)

	// A member that listens on all addresses is called locally, and one that its cluster has removed has no list.
	e.members = e.members[:1]
	_, port, _ := strings.Cut(mine.at, ":")
	assert.Equal(t, []fleet.Part{part("a", true)}, c.observe(c.etcdManifest("a", "0.0.0.0:"+port)).Members)
	e.add("b")
	mine.hidden = true
	require.ErrorContains(t, c.observe(c.etcdManifest("a", mine.at)).Err, "the member of this node is not in the list of members")

	// Without an answer it is the one with its URLs, if the API server's etcd lists the others.
	mine.hidden = false
	api := manifest("kube-apiserver", "--etcd-servers=https://127.0.0.1:1,https://"+e.members[1].at, "--etcd-cafile=/pki/ca.crt",
		"--etcd-certfile=/pki/a.crt", "--etcd-keyfile=/pki/a.key")
	dead := c.etcdManifest("another-name", "127.0.0.1:1", "--initial-advertise-peer-urls=https://peer-a:2380")
	mine.leaderless = true
	seen = c.observe(dead, api)
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{{Name: "etcd member a", Local: true, Seen: mine.at + ": it has no leader"}, part("b", false)}, seen.Members)
	assert.Empty(t, fleet.Against(fleet.Observation{Members: seen.Members}, false), "its own repair")
	require.ErrorContains(t, c.observe(c.etcdManifest("a", "127.0.0.1:1"), api).Err, "127.0.0.1:1: connection refused", "its name is no proof")
}

func TestLearnersHaveNoVote(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a")
	e.members = append(e.members, &fakeMember{etcd: e, Member: &pb.Member{ID: 9, Name: "b", IsLearner: true}})
	seen := c.observe(c.etcdManifest("a", e.members[0].at))
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{part("a", true)}, seen.Members)
	e.members[0].IsLearner = true
	require.ErrorContains(t, c.observe(c.etcdManifest("a", e.members[0].at)).Err, "no list of members")
}

// A member's URLs consist of a host and port, with http or https.
func TestURLsOfMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a")
	for _, at := range []string{
		"https://127.0.0.1:1/admin?x=", "https://127.0.0.1:1/?", "https://u:p@127.0.0.1:1", "unix://127.0.0.1:1", "file:///etc/shadow",
		"https://127.0.0.1", "https://127.0.0.1:0", "https://127.0.0.1:99999", "https://a b:1", "https://[fe80::1%25x]:1", "127.0.0.1:1",
		"https://127.0.0.1:1#x", "https://<b>:1", "", "%",
	} {
		e.members = append(e.members[:1], &fakeMember{etcd: e, Member: &pb.Member{ID: 9, Name: "b\n<script>", ClientURLs: []string{at}}})
		assert.Equal(t, "etcd member 9: cannot read its client URLs",
			fleet.Against(c.observe(c.etcdManifest("a", e.members[0].at)), false), at)
	}
}

// An unreadable member list is a hold: the health is unknown.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	many := c.etcd("a")
	for n := range 40 {
		many.members = append(many.members, &fakeMember{Member: &pb.Member{ID: uint64(n)}})
	}
	large := c.etcd("a")
	large.members[0].PeerURLs = []string{strings.Repeat("x", 1<<20)}
	denied := c.etcd("a")
	denied.members[0].listErr = status.Error(codes.PermissionDenied, "SECRET")
	for at, want := range map[string]string{
		c.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("SECRET")) }): "tls: no application protocol",
		c.serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example", http.StatusFound)
		}): "tls: no application protocol",
		many.members[0].at:   "more than 32 members",
		large.members[0].at:  "gRPC code ResourceExhausted",
		denied.members[0].at: "gRPC code PermissionDenied",
		"127.0.0.1:1":        "connection refused",
	} {
		seen := c.observe(c.etcdManifest("a", at))
		require.ErrorContains(t, seen.Err, "pod manifest etcd.yaml: ")
		require.ErrorContains(t, seen.Err, want)
		require.ErrorContains(t, seen.Err, "; apply.quorum: off skips this check")
		assert.NotContains(t, seen.Err.Error(), "SECRET")
		assert.NotEmpty(t, fleet.Against(seen, true), want)
	}
	one, two := c.etcd("a"), c.etcd("b")
	two.id = 8
	for first, want := range map[*fakeEtcd]string{many: "more than 32 members", two: "its URLs belong to several clusters"} {
		require.ErrorContains(t, c.observe(c.etcdManifest("a", one.members[0].at+",https://"+first.members[0].at)).Err, want)
	}
	require.NoError(t, os.Remove(filepath.Join(c.root, "pki/a.key")))
	seen := c.observe(c.etcdManifest("a", "127.0.0.1:1"))
	require.EqualError(t, seen.Err, "pod manifest etcd.yaml: /pki/a.key: no such file or directory; apply.quorum: off skips this check")
	require.EqualError(t, c.observe().Err, "no pod manifest names its members; apply.quorum: off skips this check")
}

// apiServer answers with its readiness, and lists the addresses for clients with the token.
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
				port := at[strings.LastIndexByte(at, ':')+1:]
				ip := strings.Trim(strings.TrimSuffix(at, ":"+port), "[]")
				subsets = append(subsets, fmt.Sprintf(`{"addresses": [{"ip": %q}], "ports": [{"name": "https", "port": %s}]}`, ip, port))
			}
			_, _ = io.WriteString(w, `{"subsets": [`+strings.Join(subsets, ",")+`]}`)
		default:
			http.NotFound(w, r)
		}
	}
}

// kubeconfig writes one with a proxy that refuses connections: questions to nodes do not go through it.
func (c *cluster) kubeconfig(name, server, token string) {
	authority := base64.StdEncoding.EncodeToString([]byte(c.ca))
	c.kubeconfigOf(name, `proxy-url: "http://127.0.0.1:1", server: "https://`+server+`", `+
		`certificate-authority-data: `+authority, "token: "+token)
}

func (c *cluster) kubeconfigOf(name, cluster, user string) {
	registrytest.Put(c.t, c.root, "/etc/kubernetes/"+name, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {`+cluster+`}}]
users: [{name: u, user: {`+user+`}}]
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
	healthy := func(at string, local bool) fleet.Part {
		return fleet.Part{Name: "API server " + at, Local: local, Healthy: true}
	}
	others := func(why string) []fleet.Part {
		return []fleet.Part{healthy(local, true), {Name: "API servers of other nodes", Seen: why + "; apply.quorum: off skips this check"}}
	}
	assert.Equal(t, others("no kubeconfig names them"), c.observe(own).Servers)
	assert.Empty(t, c.observe().Servers, "a node without API server")
	c.kubeconfig("kubelet.conf", good, "another")
	assert.Equal(t, others("the user of the kubeconfig may not list them"), c.observe(own).Servers)
	assert.Empty(t, c.observe().Servers, "a node without API server")
	c.kubeconfig("admin.conf", good, "secret")
	assert.Equal(t, []fleet.Part{healthy(local, true), healthy(good, false)}, c.observe(own).Servers)
	addresses = append(addresses, bad)
	assert.Equal(t, "API server "+bad+": 500 Internal Server Error",
		fleet.Against(fleet.Observation{Servers: c.observe(own).Servers}, true), "its words are not passed on")
	for n := range 40 {
		addresses = append(addresses, fmt.Sprint("127.0.0.2:", n+1))
	}
	assert.Equal(t, others("more than 32 API servers"), c.observe(own).Servers)
	addresses = nil
	assert.Equal(t, others("no list of API servers"), c.observe(own).Servers)
	addresses = []string{":1"}
	assert.Equal(t, others("no list of API servers"), c.observe(own).Servers)
	c.kubeconfig("admin.conf", "127.0.0.1:1", "secret")
	assert.Equal(t, others("127.0.0.1:1: connection refused"), c.observe(own).Servers)
	registrytest.Put(t, c.root, "/etc/kubernetes/admin.conf", "token: secret\n")
	require.NoError(t, os.Remove(filepath.Join(c.root, "etc/kubernetes/kubelet.conf")))
	assert.Equal(t, others("kubeconfig "+c.root+"/etc/kubernetes/admin.conf: no current-context"), c.observe(own).Servers)
}

// The list also has API servers that are not ready, and a server at another address of this node is local.
func TestAddressesOfAPIServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	subsets := ""
	local := c.serve(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			_, _ = io.WriteString(w, `{"subsets": [`+subsets+`]}`)
		}
	})
	c.kubeconfig("admin.conf", local, "secret")
	_, port, _ := strings.Cut(local, ":")
	own := manifest("kube-apiserver", "--advertise-address=127.0.0.1", "--secure-port="+port, "--tls-cert-file=/pki/a.crt", "--etcd-servers=http://127.0.0.1:1")
	subsets = `{"addresses": [{"ip": "127.0.0.1"}], "notReadyAddresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}]}`
	dialed := c.dialed(own)
	assert.Contains(t, dialed, "127.0.0.1:1")
	assert.Contains(t, dialed, "192.0.2.1:1")
	subsets = `{"addresses": [{"ip": "::1"}], "ports": [{"port": ` + port + `}]}`
	assert.NotContains(t, c.dialed(own), "[::1]:"+port)
}

// The API servers behind a load balancer are not known if they advertise its address instead of their own.
func TestAPIServersAtTheAddressOfALoadBalancer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, net.ParseIP("fd00::ba1a"), net.ParseIP("fd00::2"))
	const balancer = "[fd00::ba1a]:6443"
	var addresses []string
	server := c.serve(apiServer(true, func() []string { return addresses }))
	c.kubeconfig("admin.conf", "balancer.example.com:6443", "secret")
	observe := func(members int, advertise string) []fleet.Part {
		e := c.etcd([]string{"a", "b", "c"}[:members]...)
		own := manifest("kube-apiserver", "--advertise-address="+advertise, "--client-ca-file=/pki/ca.crt", "--tls-cert-file=/pki/a.crt",
			"--etcd-servers=https://"+e.members[0].at, "--etcd-cafile=/pki/ca.crt", "--etcd-certfile=/pki/a.crt", "--etcd-keyfile=/pki/a.key")
		return quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":6443") {
				address = server
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}.Observe(t.Context(), []node.PodFile{own}).Servers
	}
	addresses = []string{balancer}
	one := observe(1, "fd00::BA1A")
	require.Len(t, one, 1, "%+v", one)
	assert.True(t, one[0].Local)
	several := observe(3, "fd00::ba1a")
	require.Len(t, several, 2)
	assert.Equal(t, fleet.Part{
		Name: "API servers of other nodes",
		Seen: "the cluster lists only fd00::ba1a, which is not an address of this node; apply.quorum: off skips this check",
	}, several[1])
	addresses = []string{"127.0.0.1:6443"}
	assert.Len(t, observe(3, "127.0.0.1"), 1, "the only API server is this node's")
	addresses = []string{balancer, "[fd00::2]:6443"}
	assert.Len(t, observe(3, "fd00::ba1a"), 2, "the cluster knows the other one")
}

// dialed returns the addresses that an observation connects to.
func (c *cluster) dialed(files ...node.PodFile) []string {
	c.t.Helper()
	var mu sync.Mutex
	var all []string
	quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		all = append(all, address)
		mu.Unlock()
		if !strings.HasPrefix(address, "127.0.0.1:") {
			return nil, syscall.EHOSTUNREACH
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}.Observe(c.t.Context(), files)
	return all
}

// A kubeconfig that is not understood is not used, and counts as unknown API servers, even on a node without one, if the
// next kubeconfig may not list them.
func TestKubeconfigThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	server := c.serve(apiServer(true, nil))
	at, user := "server: 'https://"+server+"', certificate-authority: /pki/ca.crt", "token: secret"
	for _, x := range []struct{ cluster, user, want string }{
		{at, user + ", exec: {command: /bin/true}", "exec: the agent does not run programs"},
		{"server: 'https://" + server + "'", user, "no certificate-authority"},
		{"server: 'https://" + server + "', certificate-authority: /pki/none", user, "/pki/none: no such file"},
	} {
		c.kubeconfigOf("admin.conf", x.cluster, x.user)
		for _, next := range []string{"", "another"} {
			kubelet := filepath.Join(c.root, "etc/kubernetes/kubelet.conf")
			if require.NoError(t, os.RemoveAll(kubelet)); next != "" {
				c.kubeconfig("kubelet.conf", server, next)
			}
			seen := c.observe().Servers
			require.Len(t, seen, 1, x.want)
			assert.Equal(t, "API servers of other nodes", seen[0].Name)
			assert.False(t, seen[0].Healthy)
			assert.Contains(t, seen[0].Seen, x.want)
			assert.NotContains(t, seen[0].Seen, "secret")
			assert.Equal(t, next != "", strings.Contains(seen[0].Seen, "; the user of the kubeconfig may not list them"), seen[0].Seen)
			assert.NotEmpty(t, fleet.Against(fleet.Observation{Servers: seen}, false))
		}
	}
}

// tls-server-name names the kubeconfig's server only: another server must have its own address in its certificate.
func TestServerNameOfAKubeconfig(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	server := c.serve(apiServer(true, func() []string { return []string{"192.0.2.2:6443"} }))
	const why = ": its certificate is for another name"
	for name, want := range map[string]string{
		"api.example.com": "API server 192.0.2.2:6443" + why,
		"api.example.org": "API servers of other nodes: 192.0.2.1:6443" + why + "; apply.quorum: off skips this check",
	} {
		c.kubeconfigOf("admin.conf", "server: 'https://192.0.2.1:6443', certificate-authority: /pki/ca.crt, tls-server-name: "+name, "token: secret")
		seen := quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}}.Observe(t.Context(), nil)
		assert.Equal(t, want, fleet.Against(fleet.Observation{Servers: seen.Servers}, false))
	}
}

// No connection stays open: API servers are asked to close each, and those to etcd are closed.
func TestNoConnectionStaysOpen(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	local := c.serve(func(_ http.ResponseWriter, r *http.Request) { assert.True(t, r.Close) })
	c.kubeconfig("admin.conf", local, "secret")
	e := c.etcd("a", "b")
	ip, port, _ := strings.Cut(local, ":")
	files := []node.PodFile{
		manifest("kube-apiserver", "--advertise-address="+ip, "--secure-port="+port, "--tls-cert-file=/pki/a.crt", "--etcd-servers=http://127.0.0.1:1"),
		c.etcdManifest("a", e.members[0].at),
	}
	var open sync.WaitGroup
	quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			open.Add(1)
			conn = &closing{Conn: conn, closed: sync.OnceFunc(open.Done)}
		}
		return conn, err
	}}.Observe(t.Context(), files)
	open.Wait()
}

// closing is a connection that reports its end.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// One time limit covers the whole observation, and a silent URL does not affect the others.
func TestSilentURLs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEtcd{c: &cluster{t: t}, id: 7}
		l := bufconn.Listen(1 << 16)
		for n := range 32 {
			m := &fakeMember{etcd: e, Member: &pb.Member{ID: uint64(n + 100), Name: fmt.Sprint("m", n)}}
			for k := range 8 {
				m.ClientURLs = append(m.ClientURLs, fmt.Sprintf("http://10.0.%d.%d:2379", n, k))
			}
			e.members = append(e.members, m)
		}
		e.members[1].ClientURLs[7] = "http://10.0.0.99:2379"
		e.members[2].ClientURLs[7], e.members[2].readErr = "http://10.0.0.98:2379", rpctypes.ErrGRPCNoLeader
		e.members[0].serve(t, l)
		other := bufconn.Listen(1 << 16)
		e.members[1].serve(t, other)
		leaderless := bufconn.Listen(1 << 16)
		e.members[2].serve(t, leaderless)
		own := manifest("etcd", "--listen-client-urls=http://10.0.0.0:2379,http://10.0.0.1:2379")
		api := manifest("kube-apiserver", "--advertise-address=10.0.0.1", "--etcd-servers=http://10.0.0.1:2379,http://10.0.0.0:2379")
		began := time.Now()
		seen := quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			switch address {
			case "10.0.0.0:2379":
				return l.DialContext(ctx)
			case "10.0.0.99:2379":
				return other.DialContext(ctx)
			case "10.0.0.98:2379":
				return leaderless.DialContext(ctx)
			case "10.0.1.0:2379", "10.0.1.1:2379": // connected, but silent
				conn, silent := net.Pipe()
				t.Cleanup(func() { _ = silent.Close() })
				return conn, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}.Observe(t.Context(), []node.PodFile{own, api})
		assert.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.NoError(t, seen.Err)
		require.Len(t, seen.Members, 32)
		for n, p := range seen.Members {
			assert.Equal(t, n < 2, p.Healthy, p.Name)
			assert.Equal(t, n == 0, p.Local, p.Name)
			switch n {
			case 0, 1:
			case 2:
				assert.Equal(t, "10.0.0.98:2379: gRPC code Unavailable", p.Seen)
			default:
				assert.Contains(t, p.Seen, "no answer in time")
			}
		}
	})
}

// Each file that kubelet reads may contain any program: an unreadable one is a hold. Files that kubelet ignores have
// none.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	good := manifest("etcd", "--listen-client-urls=http://10.0.0.1:2379")
	unread := errors.New("not a regular file")
	for title, one := range map[string]struct {
		file node.PodFile
		want string
	}{
		"broken":             {node.PodFile{Data: []byte("{")}, "x.yaml: cannot be read as a Pod"},
		"a pod without any":  {node.PodFile{Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")}, "x.yaml: cannot be read as a Pod"},
		"another version":    {node.PodFile{Data: []byte("apiVersion: v2\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}]}\n")}, "x.yaml: cannot"},
		"args of numbers":    {node.PodFile{Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, args: {a: 1}}]}\n")}, "x.yaml: cannot"},
		"not read":           {node.PodFile{Err: unread}, "x.yaml: cannot be read as a Pod"},
		"passed over":        {node.PodFile{Err: unread, PassedOver: true}, ""},
		"followed":           {node.PodFile{Err: unread, Followed: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}]}\n")}, ""},
		"another kind":       {node.PodFile{Data: []byte("apiVersion: v1\nkind: Service\nmetadata: {name: x}\n")}, ""},
		"empty":              {node.PodFile{Data: []byte("# nothing\n")}, ""},
		"an unknown program": {node.PodFile{Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: a}, {name: b}]}\n")}, "x.yaml: no container is known as etcd"},
	} {
		one.file.Name = "x.yaml"
		urls, errs := quorum.Control{Root: t.TempDir()}.Read(one.file, good)
		assert.Equal(t, []string{"http://10.0.0.1:2379"}, urls, title)
		if one.want == "" {
			assert.Empty(t, errs, title)
		} else if assert.Len(t, errs, 1, title) {
			assert.ErrorContains(t, errs[0], one.want, title)
		}
	}
	many := make([]node.PodFile, 33)
	for n := range many {
		many[n] = good
	}
	_, errs := quorum.Control{}.Read(many...)
	assert.Len(t, errs, 1)
}

// podOf returns a pod with a label, a host directory, and containers in YAML flow style.
func podOf(component, containers string) node.PodFile {
	return node.PodFile{Name: "e.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x, labels: {component: " + component + "}}\nspec:\n" +
		"  volumes: [{name: d, hostPath: {path: /host}}, {name: s, secret: {secretName: s}}, {name: sub, hostPath: {path: /host/sub}}]\n" +
		"  containers: [" + containers + "]\n")}
}

// Every form of etcd's configuration and command is read; an unclear one is a hold.
func TestFormsOfEtcd(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const at, mount = "http://10.0.0.1:2379", ", volumeMounts: [{name: d, mountPath: /in}]"
	const flag = "--listen-client-urls=" + at
	registrytest.Put(t, root, "/host/config", "name: a\nlisten-client-urls: "+at+"\nclient-transport-security: {}\n")
	registrytest.Put(t, root, "/host/sub/x.yml", `{"Listen-Client-Urls": "`+at+`"}`)
	registrytest.Put(t, root, "/host/bad", "listen-client-urls: [a, b]\n")
	registrytest.Put(t, root, "/host/none", "name: a\n")
	for text, want := range map[string]string{
		"command: [etcd, '" + flag + "']":                                                                               at,
		"command: [etcd, -listen-client-urls, '" + at + "']":                                                            at,
		"args: ['" + flag + "', '--listen-client-urls=http://10.0.0.2:1', '--']":                                        "http://10.0.0.2:1",
		"command: [/usr/local/bin/etcd], args: [--auto-compaction-retention, '1', '" + flag + "', --pre-vote]":          at,
		"args: [/bin/etcd, '" + flag + "', --name, '--listen-client-urls=http://10.0.0.2:1']":                           at,
		"args: ['--listen-client-urls=http://10.0.0.1:1, http://10.0.0.2:1', '--listen-client-urls=http://10.0.0.2:1']": "http://10.0.0.1:1 http://10.0.0.2:1",
		"command: [etcd]": "http://localhost:2379",
		"command: [etcd, '--listen-client-urls=unix:///s,http://$(IP):1,http://[::1]:3']":                                                   "http://[::1]:3",
		"command: [etcd, '--listen-client-urls=http://0.0.0.0:1']":                                                                          "http://127.0.0.1:1",
		"command: [etcd, '--listen-client-urls=http://[::]:1']":                                                                             "http://127.0.0.1:1 http://[::1]:1",
		"args: [--config-file=/in/config, '--listen-client-urls=http://10.0.0.2:1']" + mount:                                                at,
		"env: [{name: ETCD_CONFIG_FILE, value: /in/config}], args: [--config-file=]" + mount:                                                at,
		"args: [--config-file, /in/sub/x.yml], volumeMounts: [{name: d, mountPath: /in}, {name: sub, mountPath: /in/sub/}]":                 at,
		"args: [--config-file=/in/x.yml], volumeMounts: [{name: d, mountPath: /in, subPath: sub}]":                                          at,
		"args: [--config-file=/in/c], volumeMounts: [{name: d, mountPath: /in/c, subPath: config}]":                                         at,
		"args: [--config-file=/in/none]" + mount:                                                                                            "http://localhost:2379",
		"env: [{name: ETCD_LISTEN_CLIENT_URLS, value: '" + at + "'}, {name: ETCD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]": at,
		"env: [{name: ETCD_LISTEN_CLIENT_URLS, value: 'http://10.0.0.2:1'}], args: ['" + flag + "']":                                        at,
		"env: [{name: IP, value: 10.0.0.1}, {name: U, value: 'http://$(IP):2379'}], args: ['--listen-client-urls=$(U)']":                    at,
		"env: [{name: X, value: a}, {name: X, value: '" + at + "'}], args: ['--listen-client-urls=$(X)']":                                   at,
		"command: [tini, --, etcd, '" + flag + "']":                                                                                         at,
	} {
		urls, errs := quorum.Control{Root: root}.Read(podOf("etcd", "{name: e, "+text+"}"))
		assert.Empty(t, errs, text)
		assert.Equal(t, strings.Fields(want), urls, text)
	}
	for text, want := range map[string]string{
		"args: [--config-file=/in/no]" + mount:                                   "config-file /in/no: no such file",
		"args: [--config-file=/in/bad]" + mount:                                  "config-file /in/bad cannot be read",
		"args: [--config-file=conf]":                                             "the path of a file",
		"args: ['--config-file=$(X)']":                                           "the variable in config-file",
		"args: [--config-file=/in/c], volumeMounts: [{name: s, mountPath: /in}]": "/in/c is in no directory of the host",
		"command: [sh, -c, 'exec etcd " + flag + "']":                            "shell command: use plain flags",
		"command: [/bin/bash, -ec], args: ['etcd " + flag + "']":                 "shell command: use plain flags",
		"command: [tini, --, sh, -c, 'exec etcd " + flag + "']":                  "program",
		"command: [sh, /run.sh, etcd]":                                           "shell command",
		"command: [run-etcd]":                                                    "program",
		"command: [env, ETCD_LISTEN_CLIENT_URLS=http://a:1, etcd]":               "program",
		"envFrom: [{configMapRef: {name: x}}]":                                   "envFrom",
		"env: [{name: ETCD_LISTEN_CLIENT_URLS, valueFrom: {fieldRef: {}}}]":      "variable",
		"command: [etcd, '--listen-client-urls=https://$(IP):1']":                "variable",
		"command: [etcd, '--listen-client-urls=unix:///run/s']":                  "URLs of listen-client-urls",
		"command: [etcd, --name, a, b]":                                          "arguments",
		"command: [etcd, '--cert-file=$(X)', --key-file=/k]":                     "the path of a file",
	} {
		_, errs := quorum.Control{Root: root}.Read(podOf("etcd", "{name: e, "+text+"}"))
		if want == "" {
			assert.Empty(t, errs, text)
		} else if assert.Len(t, errs, 1, text) {
			assert.ErrorContains(t, errs[0], "pod manifest e.yaml: ", text)
			assert.ErrorContains(t, errs[0], want, text)
		}
	}
}

// Every container that runs etcd is found, and no client of it.
func TestContainersOfEtcd(t *testing.T) {
	t.Parallel()
	etcd := func(name string, n int) string {
		return fmt.Sprintf("{name: %s, command: [etcd, '--listen-client-urls=http://10.0.0.%d:1']}", name, n)
	}
	for title, one := range map[string]struct{ component, containers, want string }{
		"two":               {"etcd", etcd("a", 1) + ", " + etcd("b", 2), "http://10.0.0.1:1 http://10.0.0.2:1"},
		"a sidecar":         {"etcd", "{name: x, command: [sleep]}, " + etcd("a", 1), "http://10.0.0.1:1"},
		"a client beside":   {"etcd", "{name: x, command: [etcdctl, snapshot, --dir=/var/lib/etcd]}, " + etcd("a", 1), "http://10.0.0.1:1"},
		"a client alone":    {"etcd", "{name: x, command: [/bin/etcdctl, snapshot]}", ""},
		"no label":          {"velum", etcd("a", 1), "http://10.0.0.1:1"},
		"by its name":       {"etcd", "{name: x}, {name: etcd, args: ['--listen-client-urls=http://10.0.0.3:1']}", "http://10.0.0.3:1"},
		"both":              {"x", etcd("a", 1) + ", {name: k, command: [kube-apiserver, '--etcd-servers=http://10.0.0.1:1']}", strings.Repeat("http://10.0.0.1:1 ", 2) + "127.0.0.1:6443"},
		"an init container": {"etcd", etcd("a", 1) + "]\n  initContainers: [{name: i, restartPolicy: Always, command: [etcd]}, {name: j, command: [etcd]}", "http://10.0.0.1:1 http://localhost:2379"},
	} {
		urls, errs := quorum.Control{Root: t.TempDir()}.Read(podOf(one.component, one.containers))
		assert.Empty(t, errs, title)
		assert.Equal(t, strings.Fields(one.want), append([]string{}, urls...), title)
	}
	urls, errs := quorum.Control{}.Read(node.PodFile{Name: "e.json", Data: []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": ` +
		`{"containers": [{"name": "e", "command": ["\/bin\/etcd", "--listen-client-urls=http:\/\/10.0.0.1:1"]}]}}`)})
	assert.Empty(t, errs)
	assert.Equal(t, []string{"http://10.0.0.1:1"}, urls, "JSON")
}

// The flags of kube-apiserver lead to its etcd, in every form of its command.
func TestFormsOfAPIServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a")
	for name, text := range map[string]string{"ca.crt": c.ca, "sub/a.crt": c.cert, "sub/a.key": c.key} {
		registrytest.Put(t, c.root, "/host/"+name, text)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(c.root, "pki")))
	at := e.members[0].at
	const mounts = ", volumeMounts: [{name: d, mountPath: /etc/pki}, {name: sub, mountPath: /etc/pki/etcd}]"
	const certs = "--etcd-cafile=/etc/pki/ca.crt --etcd-certfile=/etc/pki/etcd/a.crt --etcd-keyfile=/etc/pki/etcd/a.key"
	list := strings.ReplaceAll(certs, " ", "', '")
	for _, text := range []string{
		"command: [kube-apiserver, '--etcd-servers=https://" + at + "', '" + list + "']",
		"command: [kube-apiserver, --etcd_servers, 'https://" + at + "/', --v, '2', '" + list + "']",
		"command: [kube-apiserver, '--etcd-servers=https://127.0.0.1:1', '--etcd-servers=https://" + at + "', '" + list + "']",
		"command: [/hyperkube, apiserver, '--etcd-servers=https://" + at + "', '" + list + "']",
		"command: [/go-runner, --log-file=/l, --, kube-apiserver, '--etcd-servers=https://" + at + "', '" + list + "']",
		"command: [kube-apiserver, '--etcd-servers=$(E)', '" + list + "'], env: [{name: E, value: 'https://" + at + "'}]",
		"args: ['--etcd-servers=https://" + at + "', '" + list + "']",
	} {
		seen := c.observe(podOf("kube-apiserver", "{name: k, "+text+mounts+"}"))
		require.NoError(t, seen.Err, text)
		assert.Equal(t, []fleet.Part{part("a", false)}, seen.Members, text)
	}
	for text, want := range map[string]string{
		"command: [kube-apiserver]":                                                                     "etcd-servers is not set",
		"command: [kube-apiserver, '--etcd-servers=unix://kine.sock']":                                  "URLs of etcd-servers",
		"command: [kube-apiserver, '--etcd-servers=$(E)']":                                              "variable in etcd-servers",
		"command: [start-api]":                                                                          "its program is not kube-apiserver",
		"command: [kube-apiserver, '--etcd-servers=http://10.0.0.1:1', --etcd-cafile=/nowhere]":         "/nowhere: no such file or directory",
		"command: [kube-apiserver, '--etcd-servers=http://10.0.0.1:1', --secure-port=x]":                "secure-port",
		"command: [kube-apiserver, '--etcd-servers=http://10.0.0.1:1', '--client-ca-file=$(X)/ca.crt']": "the path of a file",
	} {
		_, errs := quorum.Control{Kubeconfigs: kubeconfigs, Root: c.root}.Read(podOf("kube-apiserver", "{name: k, "+text+mounts+"}"))
		if assert.Len(t, errs, 1, text) {
			assert.ErrorContains(t, errs[0], want, text)
		}
	}
}

// RKE2's files: its etcd has a configuration file, its API server certificates without a mount.
func TestRKE2(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.etcd("a")
	const dir = "/var/lib/rancher/rke2/server/"
	registrytest.Put(t, c.root, dir+"db/etcd/config", "name: other\nlisten-client-urls: https://"+e.members[0].at+
		"\nlisten-client-http-urls: https://127.0.0.1:2382\nclient-transport-security: {cert-file: /pki/a.crt, key-file: /pki/a.key, trusted-ca-file: /pki/ca.crt}\n")
	file := podOf("etcd", "{name: etcd, command: [etcd], args: [--config-file="+dir+"db/etcd/config], volumeMounts: [{name: dir0, mountPath: "+dir+"db/etcd}]}")
	file.Data = []byte(strings.Replace(string(file.Data), "volumes: [", "volumes: [{name: dir0, hostPath: {path: "+dir+"db/etcd}}, ", 1))
	seen := c.observe(file)
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{part("a", true)}, seen.Members)
	require.NoError(t, os.Remove(filepath.Join(c.root, dir, "db/etcd/config")))
	require.EqualError(t, c.observe(file).Err, "pod manifest e.yaml: config-file "+dir+"db/etcd/config: no such file or directory; apply.quorum: off skips this check")
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: etcd, command: [etcd, --name, a, '--x=y']}]}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: etcd, command: [sh, -c, 'a \"b\" $(c) > d; exec etcd ${e}']}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		quorum.Control{Root: t.TempDir()}.Read(node.PodFile{Name: "x", Data: data})
	})
}
