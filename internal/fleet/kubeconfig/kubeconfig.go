// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig reads a kubeconfig: the API server of its current context, and the credentials for it. It makes
// requests to that server, and reads why the server refuses one.
//
// It accepts a part of what kubectl accepts, with the same meaning (e2e/neighbours compares it with clientcmd): https,
// authorities, a client certificate, a token or its file, tls-server-name and proxy-url. It refuses everything else
// that changes who asks whom: programs (exec, auth-provider), because root does not run what a file names; passwords,
// impersonation, and servers that are not verified.
package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

const maxFile = 1 << 20 // bytes of a kubeconfig, and of a certificate, a key or a token

// Config leads to an API server.
type Config struct {
	Server      string // URL, without a trailing slash
	Authorities []byte // PEM; empty: the system's
	TLS         *tls.Config
	Token       string   // empty: none
	Proxy       *url.URL // nil: none
}

// Host returns host[:port] of the server.
func (c Config) Host() string {
	u, err := url.Parse(c.Server)
	if err != nil {
		return ""
	}
	return u.Host
}

// Transport returns a transport for the server. It does not send the token.
func (c Config) Transport() *http.Transport {
	t := &http.Transport{TLSClientConfig: c.TLS.Clone()}
	if c.Proxy != nil {
		t.Proxy = http.ProxyURL(c.Proxy)
	}
	return t
}

// Read reads a kubeconfig. The absolute paths in it are below root, the others begin beside it. Errors do not quote the
// content, which has secrets.
func Read(root, place string) (Config, error) {
	c, err := read(root, place)
	if err != nil {
		return Config{}, fmt.Errorf("kubeconfig %s: %w", place, err)
	}
	return c, nil
}

func read(root, place string) (Config, error) {
	data, err := nodefile.Read(place, maxFile)
	if err != nil {
		return Config{}, err
	}
	var f file
	if yaml.Unmarshal(data, &f) != nil {
		return Config{}, errors.New("not a kubeconfig")
	}
	cluster, user, err := f.current()
	if err != nil {
		return Config{}, err
	}
	p := paths{root: root, dir: filepath.Dir(place)}
	var c Config
	if err = c.reach(cluster, p); err == nil {
		err = c.identify(user, p)
	}
	return c, err
}

// paths resolves the paths in a kubeconfig.
type paths struct{ root, dir string }

func (p paths) read(name string) ([]byte, error) {
	at := filepath.Join("/", p.root, name)
	if !filepath.IsAbs(name) {
		at = filepath.Join(p.dir, name)
	}
	data, err := nodefile.Read(at, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return data, nil
}

// either returns the embedded data, else the content of the file; nil if there is neither.
func (p paths) either(data binary, name string) ([]byte, error) {
	if len(data) > 0 || name == "" {
		return data, nil
	}
	return p.read(name)
}

// reach sets how the server is reached.
func (c *Config) reach(cluster cluster, p paths) error {
	if cluster.Insecure {
		return errors.New("insecure-skip-tls-verify: the server must be verified")
	}
	at, err := url.Parse(cluster.Server)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return errors.New("server: want a URL with https")
	}
	c.Server = strings.TrimRight(cluster.Server, "/")
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.ServerName}
	ca, err := p.either(cluster.CAData, cluster.CA)
	if err != nil {
		return fmt.Errorf("certificate-authority: %w", err)
	}
	if len(ca) > 0 {
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(ca) {
			return errors.New("certificate-authority: no certificates")
		}
		c.Authorities = ca
	}
	if cluster.Proxy == "" {
		return nil
	}
	proxy, err := url.Parse(cluster.Proxy)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) || proxy.Host == "" {
		return errors.New("proxy-url: want a URL with http, https or socks5")
	}
	c.Proxy = proxy
	return nil
}

// identify sets the credentials.
func (c *Config) identify(u user, p paths) error {
	if refused := u.refused(); refused != "" {
		return errors.New(refused)
	}
	cert, err := p.either(u.CertData, u.Cert)
	if err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	key, err := p.either(u.KeyData, u.Key)
	if err != nil {
		return fmt.Errorf("client-key: %w", err)
	}
	if len(cert)+len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return errors.New("client-certificate and client-key: no certificate with its key")
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	c.Token = u.Token
	if u.TokenFile != "" { // kubectl prefers it
		token, err := p.read(u.TokenFile)
		if err != nil {
			return fmt.Errorf("tokenFile: %w", err)
		}
		c.Token = strings.TrimSpace(string(token))
	}
	if c.Token == "" && len(c.TLS.Certificates) == 0 {
		return errors.New("no client certificate and no token")
	}
	return nil
}
