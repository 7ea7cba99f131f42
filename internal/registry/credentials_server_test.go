// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// htpasswd is the line for the user u with the secret: bcrypt, cost 5.
const htpasswd = "u:$2y$05$.7xlTCEQhZU6rFLWKxGAfu4gXAc3AnLQRNPqJvA5WGM6eqy7oJHda\n"

// pushTLS pushes an image to a registry with TLS that accepts the Authorization.
func pushTLS(t testing.TB, ca, reference, authorization string, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	data, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(data))
	next := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer next.CloseIdleConnections()
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", authorization)
		return next.RoundTrip(req)
	})
	require.NoError(t, remote.Write(ref, img, remote.WithTransport(transport), remote.WithContext(t.Context())))
}

// fileLogins returns the logins of an auth.json below root, and the log.
func fileLogins(t testing.TB, root string, logged *bytes.Buffer) func(*Options) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	logins := newCredentials(t, hosts.CredentialOptions{Root: root, Getenv: environ("REGISTRY_AUTH_FILE", "/auth.json"), Log: log})
	return func(o *Options) { o.Credentials, o.Log = logins, log }
}

func TestPasswordsOfARealRegistry(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	root := t.TempDir()
	put(t, root, "htpasswd", htpasswd)
	host := startDistributionWith(t, "auth: {htpasswd: {realm: test, path: "+filepath.Join(root, "htpasswd")+"}}\n", cert, key)
	img := testImage(t, "linux/amd64")
	pushTLS(t, ca, host+"/app:1", "Basic "+encodedAuth("u", secret), img)
	pushTLS(t, ca, host+"/other:1", "Basic "+encodedAuth("u", secret), img)
	put(t, root, "auth.json", `{"auths": {"`+host+`": {"username": "u", "password": "wrong-password"}, "`+host+`/app": {"auth": "`+encodedAuth("u", secret)+`"}}}`)
	logged := new(bytes.Buffer)
	r, rec := newRegistry(t, certsD(t, host, "server = \"https://"+host+"\"\nca = \""+ca+"\"\n"), fileLogins(t, root, logged))
	poll := func(repository string) error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/" + repository, Tag: "1"})
		return err
	}
	require.NoError(t, poll("app"), "the longer key")
	require.NoError(t, poll("app"))
	assert.Equal(t, uint64(3), r.Counts().Requests, "one 401 only")
	for range 3 {
		before := rec.authorized()
		var source *release.SourceError
		err := poll("other")
		require.ErrorAs(t, err, &source, "the shorter key")
		assert.Equal(t, http.StatusUnauthorized, source.Status)
		assert.LessOrEqual(t, rec.authorized()-before, 1, "a wrong password is sent once at most")
	}
	pulled, err := img.Digest()
	require.NoError(t, err)
	_, err = r.Locate(t.Context(), host+"/app", digest.Digest(pulled.String()))
	require.NoError(t, err, "pulls have the same logins")

	put(t, root, "auth.json", authJSONOf(host, "u"))
	require.NoError(t, poll("other"), "the file was corrected")
	put(t, root, "auth.json", "{}")
	require.ErrorContains(t, poll("app"), "no basic auth credentials", "and emptied")
	assertKept(t, r, 1)
	assert.False(t, secretIn(logged.String()), logged)
}

// signer is a token server that docker-registry trusts.
type signer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	chain []string
	mu    sync.Mutex
	asked []string // "POST u", "GET u", "POST refresh", "GET"
	post  bool     // POST is supported
	old   int      // number of expired tokens to issue
}

func newSigner(t testing.TB, ca *x509.Certificate, caKey *ecdsa.PrivateKey) *signer {
	t.Helper()
	key, leaf := issue(t, ca, caKey)
	s := &signer{key: key, chain: []string{base64.StdEncoding.EncodeToString(leaf.Raw)}}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *signer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user, password, _ := req.BasicAuth()
	who := req.Method + " " + user
	if req.Method == http.MethodPost {
		if !s.post {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		user, password = req.PostFormValue("username"), req.PostFormValue("password")
		who = "POST " + user
		if req.PostFormValue("grant_type") == "refresh_token" {
			who, user, password = "POST refresh", "u", req.PostFormValue("refresh_token")
		}
	}
	s.asked = append(s.asked, strings.TrimSpace(who))
	if user != "u" || password != secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ends := time.Now().Add(time.Hour)
	if s.old > 0 {
		s.old--
		ends = time.Now().Add(-time.Hour)
	}
	token, err := s.sign(strings.Fields(strings.Join(append(req.URL.Query()["scope"], req.PostFormValue("scope")), " ")), ends)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, `{"token":%[1]q,"access_token":%[1]q,"expires_in":3600}`, token)
}

// sign returns a JSON web token (RFC 7519) by the distribution specification of tokens.
func (s *signer) sign(scopes []string, ends time.Time) (string, error) {
	access := []map[string]any{}
	for _, scope := range scopes {
		if parts := strings.Split(scope, ":"); len(parts) == 3 {
			access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": strings.Split(parts[2], ",")})
		}
	}
	begins := ends.Add(-2 * time.Hour).Unix()
	var parts []string
	for _, part := range []map[string]any{
		{"typ": "JWT", "alg": "ES256", "x5c": s.chain},
		{"iss": "test", "sub": "u", "aud": "service", "exp": ends.Unix(), "nbf": begins, "iat": begins, "jti": rand.Text(), "access": access},
	} {
		data, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(data))
	}
	hash := sha256.Sum256([]byte(strings.Join(parts, ".")))
	x, y, err := ecdsa.Sign(rand.Reader, s.key, hash[:])
	if err != nil {
		return "", err
	}
	signature := append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	return strings.Join(append(parts, base64.RawURLEncoding.EncodeToString(signature)), "."), nil
}

func (s *signer) set(post bool, old int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.post, s.old, s.asked = post, old, nil
}

func (s *signer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// tokenRegistry runs docker-registry with a token server.
func tokenRegistry(t *testing.T) (host, ca string, s *signer) {
	t.Helper()
	dir := t.TempDir()
	caKey, caCert := issue(t, nil, nil)
	ca = writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", caCert.Raw)
	leafKey, leaf := issue(t, caCert, caKey)
	der, err := x509.MarshalECPrivateKey(leafKey)
	require.NoError(t, err)
	s = newSigner(t, caCert, caKey)
	host = startDistributionWith(t,
		"auth: {token: {realm: "+s.URL+"/token, service: service, issuer: test, rootcertbundle: "+ca+"}}\n",
		writePEM(t, filepath.Join(dir, "leaf.crt"), "CERTIFICATE", leaf.Raw),
		writePEM(t, filepath.Join(dir, "leaf.key"), "EC PRIVATE KEY", der))
	token, err := s.sign([]string{"repository:app:pull,push"}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	pushTLS(t, ca, host+"/app:1", "Bearer "+token, testImage(t, "linux/amd64"))
	return host, ca, s
}

func TestTokensOfARealRegistry(t *testing.T) {
	t.Parallel()
	host, ca, s := tokenRegistry(t)
	server, err := url.Parse(s.URL)
	require.NoError(t, err)
	identity := `{"auths": {"` + host + `": {"identitytoken": "` + secret + `"}}}`
	flows := []struct {
		title, file string
		post        bool
		want        []string
	}{
		{"POST", authJSONOf(host, "u"), true, []string{"POST u"}},
		{"GET", authJSONOf(host, "u"), false, []string{"GET u"}},
		{"identity token", identity, true, []string{"POST refresh"}},
	}
	for _, f := range flows {
		s.set(f.post, 0)
		root := t.TempDir()
		put(t, root, "auth.json", f.file)
		logged := new(bytes.Buffer)
		hosts := certsD(t, host, "server = \"https://"+host+"\"\nca = \""+ca+"\"\n")
		listed := func(o *Options) { o.TokenServers = map[string]string{host: server.Host} }
		r, _ := newRegistry(t, hosts, fileLogins(t, root, logged), listed)
		poll := func(r *guarded) error {
			_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
			return err
		}
		for range 3 {
			require.NoError(t, poll(r), f.title)
		}
		assert.Equal(t, f.want, s.log(), "%s: the token is used again", f.title)
		named, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
		require.NoError(t, err)
		_, err = r.Locate(t.Context(), host+"/app", named.Digest)
		require.NoError(t, err)
		assert.Equal(t, f.want, s.log(), "%s: by pulls, too", f.title)

		r, _ = newRegistry(t, hosts, fileLogins(t, root, logged), listed)
		s.set(f.post, 1)
		require.ErrorContains(t, poll(r), "401", "a token that has ended")
		require.NoError(t, poll(r), "is renewed when it is refused")
		assert.Len(t, s.log(), 2, "once")

		r, _ = newRegistry(t, hosts, fileLogins(t, root, logged))
		s.set(f.post, 0)
		require.ErrorContains(t, poll(r), "credentials are for the registry only")
		assert.Equal(t, []string{"GET"}, s.log(), "a token server that is not listed sees no login")
		assert.False(t, secretIn(logged.String()), logged)
	}
}
