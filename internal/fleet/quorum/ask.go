// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// errClosed is the error for a server that accepts connections and closes them.
const errClosed = words("it closes each connection: it requires another certificate, or does not speak gRPC")

// get sends a GET request to a URL and returns the body of a 200. It follows no redirect.
func (i identity) get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, bytes.NewReader(nil))
	if err != nil {
		return nil, err
	}
	if i.token != "" {
		req.Header.Set("Authorization", "Bearer "+i.token)
	}
	transport := &http.Transport{ // without a proxy: these are nodes of the same cluster
		TLSClientConfig: i.tls(),
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return i.dial(ctx, network, address) // the request's context would not end with the call
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := outside.ReadAll(resp.Body, maxBody)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &errStatus{resp.StatusCode}
	}
	return data, err
}

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
