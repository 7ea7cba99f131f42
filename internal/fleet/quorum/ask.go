// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

// errClosed is the error for a server that accepts connections and closes them.
const errClosed = words("it closes each connection: it requires another certificate, or does not speak gRPC")

// ask calls one URL of an etcd with etcd's client, which is closed afterwards. The first failure to connect ends the
// call: the client would retry until the time is over, as it does when a server reports that it cannot answer yet.
func (i identity) ask(ctx context.Context, at string, question func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{at}, Context: ctx, Logger: zap.NewNop(), MaxCallRecvMsgSize: maxBody,
		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithMaxHeaderListSize(maxHeader),
			grpc.WithContextDialer(i.dialOnce(fail)), i.credentials(at, fail),
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	err = question(ctx, client)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// dialOnce opens one connection to a server.
func (i identity) dialOnce(fail context.CancelCauseFunc) func(context.Context, string) (net.Conn, error) {
	var again atomic.Bool
	return func(ctx context.Context, address string) (net.Conn, error) {
		if again.Swap(true) {
			fail(errClosed)
			return nil, errClosed
		}
		conn, err := i.dial(ctx, "tcp", address)
		if err != nil {
			fail(err)
		}
		return conn, err
	}
}

// credentials returns the credentials for a URL: for https the server's certificate is verified.
func (i identity) credentials(at string, fail context.CancelCauseFunc) grpc.DialOption {
	if !isHTTPS(at) {
		return grpc.EmptyDialOption{}
	}
	return grpc.WithTransportCredentials(handshake{credentials.NewTLS(i.tls()), fail})
}

// handshake reports a failed handshake.
type handshake struct {
	credentials.TransportCredentials
	fail context.CancelCauseFunc
}

func (h handshake) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		h.fail(err)
	}
	return conn, info, err
}

func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone(), h.fail}
}

// identity is the client's certificate for a server, and the authorities to verify it.
type identity struct {
	authorities []byte            // PEM; empty: the system's
	pairs       []tls.Certificate // the first one that the server accepts is used
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
}

func (i identity) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: i.pairs}
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

const (
	errNoKubeconfig = words("no kubeconfig names them")
	errNoAuthority  = words("no certificate-authority")
)

// lister lists the API servers of the cluster that a kubeconfig leads to. It does not use proxy-url: these are nodes of
// the same cluster.
type lister struct {
	kubeconfig.Config
	skipped []string // why the kubeconfigs before this one are not used
}

// newLister uses the first usable kubeconfig below root.
func newLister(root string, names []string) (lister, error) {
	var skipped []string
	for _, name := range names {
		place := filepath.Join("/", root, name)
		if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) { // a file that it names must exist
			continue
		}
		c, err := kubeconfig.Read(root, place)
		if err == nil && c.TLS.RootCAs == nil {
			err = errNoAuthority
		}
		if err == nil {
			c.Proxy = nil
			return lister{c, skipped}, nil
		}
		skipped = append(skipped, outside.Text(err.Error()))
	}
	if skipped == nil {
		return lister{}, errNoKubeconfig
	}
	return lister{}, words(strings.Join(skipped, "; "))
}

// notAllowed is the error of a kubeconfig that may not list the API servers. One that was skipped might.
func (l lister) notAllowed() error {
	if l.skipped == nil {
		return errNotAllowed
	}
	return words(strings.Join(append(l.skipped, string(errNotAllowed)), "; "))
}
