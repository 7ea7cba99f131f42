// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// APIServer is a real kube-apiserver over an etcd, with RBAC. Its users have their names as tokens: admin may do
// everything, others only what a test allows them; system:node:NAME is the kubelet of a node.
type APIServer struct {
	URL, CA string
	t       testing.TB
	dir     string
	args    []string
	client  *http.Client
	process *exec.Cmd
	ended   chan struct{}
}

// StartAPIServer starts an API server, and waits until it is ready. users are its users besides admin.
func StartAPIServer(t testing.TB, etcd *EtcdCluster, users ...string) *APIServer {
	t.Helper()
	ca, cert, key := registrytest.Certificate(t)
	s := &APIServer{t: t, dir: t.TempDir(), URL: "https://" + Address(node.FreePort(t)), CA: ca}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	require.NoError(t, err)
	tokens := []string{"admin,admin,0,system:masters"}
	for n, user := range users {
		token := fmt.Sprintf("%s,%s,%d", user, user, n+1)
		if strings.HasPrefix(user, "system:node:") {
			token += ",system:nodes"
		}
		tokens = append(tokens, token)
	}
	s.put("tokens.csv", strings.Join(tokens, "\n")+"\n")
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(signer)
	require.NoError(t, err)
	s.put("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\n"+
		"rules: [{level: Metadata, omitStages: [RequestReceived]}]\n")
	s.put("signer.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	s.args = []string{
		"--etcd-servers=" + strings.Join(etcd.Store().URLs, ","), "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--cert-dir=" + s.dir,
		"--token-auth-file=" + filepath.Join(s.dir, "tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://tests", "--service-account-key-file=" + filepath.Join(s.dir, "signer.pem"),
		"--service-account-signing-key-file=" + filepath.Join(s.dir, "signer.pem"), "--service-cluster-ip-range=10.0.0.0/24",
		"--audit-policy-file=" + filepath.Join(s.dir, "audit.yaml"), "--audit-log-path=" + filepath.Join(s.dir, "audit.log"),
	}
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(registrytest.Text(t, ca))))
	s.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		Timeout:   time.Minute,
	}
	t.Cleanup(s.Kill)
	s.Start()
	s.AwaitReady()
	return s
}

func (s *APIServer) put(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// Start starts the server, and does not wait until it is ready.
func (s *APIServer) Start() {
	s.t.Helper()
	program := filepath.Join(Shell(s.t, Checkout(s.t), "tools/setup where apiserver"), "kube-apiserver")
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	s.process = exec.CommandContext(context.WithoutCancel(s.t.Context()), program, s.args...)
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, s.process.Start())
	s.ended = make(chan struct{})
	go func(p *exec.Cmd, ended chan struct{}) {
		_ = p.Wait()
		close(ended)
	}(s.process, s.ended)
}

// Kill kills the server if it runs.
func (s *APIServer) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.ended
		s.process = nil
	}
}

// AwaitReady waits until the server is ready.
func (s *APIServer) AwaitReady() {
	s.t.Helper()
	node.Eventually(s.t, "kube-apiserver", Ready, func() error {
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("kube-apiserver has ended: %s", log)
		default:
		}
		if code, said := s.Ask(http.MethodGet, "/readyz", ""); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, said)
		}
		if code, said := s.Ask(http.MethodGet, "/api/v1/namespaces/kube-system", ""); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, said)
		}
		return nil
	})
}

// Ask sends a request of the admin, and returns status and body; 0 if there is no answer.
func (s *APIServer) Ask(method, path, body string) (code int, said string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, bytes.NewReader([]byte(body)))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer admin")
	req.Header.Set("Content-Type", "application/yaml") // which JSON is, too
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// Kubeconfig returns the path of a new kubeconfig of a user.
func (s *APIServer) Kubeconfig(user string) string {
	s.t.Helper()
	s.put("kubeconfig-"+user, "apiVersion: v1\nkind: Config\ncurrent-context: it\n"+
		"contexts: [{name: it, context: {cluster: it, user: it}}]\n"+
		"clusters: [{name: it, cluster: {server: "+strconv.Quote(s.URL)+", certificate-authority-data: "+
		base64.StdEncoding.EncodeToString([]byte(registrytest.Text(s.t, s.CA)))+"}}]\n"+
		"users: [{name: it, user: {token: "+user+"}}]\n")
	return filepath.Join(s.dir, "kubeconfig-"+user)
}

// Requests returns verb and path of the requests by the clients with a User-Agent, as the server's audit log has them.
func (s *APIServer) Requests(agent func(string) bool) (all []string) {
	s.t.Helper()
	for line := range strings.Lines(registrytest.Text(s.t, filepath.Join(s.dir, "audit.log"))) {
		var event struct{ Verb, RequestURI, UserAgent string }
		require.NoError(s.t, json.Unmarshal([]byte(line), &event))
		if agent(event.UserAgent) {
			all = append(all, event.Verb+" "+event.RequestURI)
		}
	}
	return all
}
