// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"slices"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// identity is the client's certificate for a server, and the authorities to verify it.
type identity struct {
	authorities []byte            // PEM; empty: the system's
	name        string            // the server's, in its certificate; empty: its host
	pairs       []tls.Certificate // the first one that the server accepts is used
	token       string
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
}

func (i identity) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: i.name, Certificates: i.pairs}
	if len(i.authorities) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(i.authorities)
	}
	return config
}

// serve completes the identity for the etcd of this node with the client certificate of its API server, because etcd's
// server certificate may not be valid for clients.
func (i *identity) serve(client identity) {
	i.authorities = slices.Concat(i.authorities, client.authorities)
	i.pairs = slices.Concat(client.pairs, i.pairs)
}

// bundle reads certificates by their container paths, as PEM.
func (c container) bundle(root string, names ...string) ([]byte, error) {
	var all []byte
	for _, name := range names {
		if name == "" {
			continue
		}
		pem, err := c.read(root, name)
		if err != nil {
			return nil, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, words(name + ": no certificates")
		}
		all = append(append(all, pem...), '\n')
	}
	return all, nil
}

// pair reads a client certificate; none if it has no name.
func (c container) pair(root, cert, key string) ([]tls.Certificate, error) {
	if cert == "" || key == "" {
		return nil, nil
	}
	certPEM, err := c.read(root, cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := c.read(root, key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, words(cert + ": no certificate with its key")
	}
	return []tls.Certificate{pair}, nil
}

// read reads a file by its container path.
func (c container) read(root, name string) ([]byte, error) {
	at, err := c.onHost(name)
	if err != nil {
		return nil, err
	}
	data, err := nodefile.Read(filepath.Join("/", root, at), maxFile)
	if err != nil {
		return nil, words(at + ": " + err.Error())
	}
	return data, nil
}
