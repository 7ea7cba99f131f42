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
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

const (
	maxFile   = 1 << 20  // bytes of a kubeconfig, and of a certificate, a key or a token
	maxHeader = 16 << 10 // bytes of an answer's header
)

// Config leads to an API server.
type Config struct {
	Server string      // URL, without a trailing slash
	TLS    *tls.Config // without RootCAs: the system's authorities
	Token  string      // empty: none
	Proxy  *url.URL    // nil: none
	// Dial opens the connections of Get; nil: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Host returns host[:port] of the server.
func (c Config) Host() string {
	u, _ := url.Parse(c.Server) // Read has parsed it
	return u.Host
}

// Transport returns a transport for the server. It does not send the token.
func (c Config) Transport() *http.Transport {
	t := &http.Transport{TLSClientConfig: c.TLS.Clone(), DisableCompression: true, MaxResponseHeaderBytes: maxHeader}
	if c.Proxy != nil {
		t.Proxy = http.ProxyURL(c.Proxy)
	}
	return t
}

// Read reads a kubeconfig. Absolute paths in it are below root, relative ones begin beside it. Errors do not quote the
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

// file is a kubeconfig as it is written, see k8s.io/client-go/tools/clientcmd/api/v1.
type file struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Current    string `yaml:"current-context"`
	Contexts   []struct {
		Name    string `yaml:"name"`
		Context pair   `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type pair struct {
	Cluster string `yaml:"cluster"`
	User    string `yaml:"user"`
}

type cluster struct {
	Server     string `yaml:"server"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	CA         string `yaml:"certificate-authority"`
	CAData     binary `yaml:"certificate-authority-data"`
	Proxy      string `yaml:"proxy-url"`
}

type user struct {
	Cert      string `yaml:"client-certificate"`
	CertData  binary `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   binary `yaml:"client-key-data"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`

	// Refused.
	Exec         yaml.Node           `yaml:"exec"`
	AuthProvider yaml.Node           `yaml:"auth-provider"`
	Username     string              `yaml:"username"`
	Password     string              `yaml:"password"`
	As           string              `yaml:"as"`
	AsUID        string              `yaml:"as-uid"`
	AsGroups     []string            `yaml:"as-groups"`
	AsExtra      map[string][]string `yaml:"as-user-extra"`
}

// refused returns why the agent does not use a user; empty if it does.
func (u user) refused() string {
	isSet := func(n yaml.Node) bool { return !n.IsZero() && n.Tag != "!!null" }
	switch {
	case isSet(u.Exec):
		return "exec: the agent does not run programs for credentials"
	case isSet(u.AuthProvider):
		return "auth-provider: the agent does not run programs for credentials"
	case u.Username != "" || u.Password != "":
		return "username and password are refused: want a client certificate or a token"
	case u.As != "" || u.AsUID != "" || len(u.AsGroups) > 0 || len(u.AsExtra) > 0:
		return "as: the agent does not act as another user"
	}
	return ""
}

// binary is data in base64.
type binary []byte

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *binary) UnmarshalYAML(n *yaml.Node) (err error) {
	if *b, err = base64.StdEncoding.DecodeString(n.Value); err != nil {
		return errors.New("not base64")
	}
	return nil
}

// current returns cluster and user of the current context.
func (f file) current() (c cluster, u user, err error) {
	if f.APIVersion != "" && f.APIVersion != "v1" || f.Kind != "" && f.Kind != "Config" {
		return c, u, errors.New("not a kubeconfig: want apiVersion v1 and kind Config")
	}
	if f.Current == "" {
		return c, u, errors.New("no current-context")
	}
	contexts, clusters, users := map[string]pair{}, map[string]cluster{}, map[string]user{}
	for _, one := range f.Contexts {
		contexts[one.Name] = one.Context
	}
	for _, one := range f.Clusters {
		clusters[one.Name] = one.Cluster
	}
	for _, one := range f.Users {
		users[one.Name] = one.User
	}
	if len(contexts) < len(f.Contexts) || len(clusters) < len(f.Clusters) || len(users) < len(f.Users) {
		return c, u, errors.New("two contexts, clusters or users share a name")
	}
	at, known := contexts[f.Current]
	c, hasCluster := clusters[at.Cluster]
	u, hasUser := users[at.User]
	switch {
	case !known:
		err = fmt.Errorf("current-context: no context %.64q", f.Current)
	case !hasCluster:
		err = fmt.Errorf("context %.64q: no cluster %.64q", f.Current, at.Cluster)
	case !hasUser:
		err = fmt.Errorf("context %.64q: no user %.64q", f.Current, at.User)
	}
	return c, u, err
}
