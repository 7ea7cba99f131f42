// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// identity is what a server is shown, and which authorities it is verified with.
type identity struct {
	roots *x509.CertPool // nil: the system's
	pair  []tls.Certificate
	token string
}

// identityOf reads PEM files below root; an empty name is none.
func identityOf(root, cert, key string, authorities ...string) (id identity, err error) {
	read := func(name string) []byte {
		data, errRead := trustedfile.Read(filepath.Join("/", root, name), maxFile)
		if errRead != nil && err == nil {
			err = fmt.Errorf("%s: %w", name, errRead)
		}
		return data
	}
	for _, ca := range authorities {
		if ca == "" {
			continue
		}
		if id.roots == nil {
			id.roots = x509.NewCertPool()
		}
		if pem := read(ca); err == nil && !id.roots.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s: no certificates", ca)
		}
	}
	if cert == "" || key == "" {
		return id, err
	}
	certPEM, keyPEM := read(cert), read(key)
	if err == nil {
		err = id.show(certPEM, keyPEM)
	}
	return id, err
}

// show adds a client certificate.
func (i *identity) show(cert, key []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	i.pair = []tls.Certificate{pair}
	return nil
}

// errStatus is an answer with another code than 200.
type errStatus struct {
	code int
	said string
}

func (e *errStatus) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%d %s", e.code, http.StatusText(e.code))
	}
	return fmt.Sprintf("%d: %s", e.code, e.said)
}

// ask sends one request and returns the body of a 200. Redirects are not followed. A nil body makes a GET.
func (i identity) ask(ctx context.Context, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if i.token != "" {
		req.Header.Set("Authorization", "Bearer "+i.token)
	}
	transport := &http.Transport{ // without a proxy: these are nodes of the same cluster
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: i.roots, Certificates: i.pair},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", askTimeout)
		}
		return nil, outside.Error(err)
	}
	defer resp.Body.Close()
	data, err := outside.ReadAll(resp.Body, maxBody)
	switch {
	case err != nil:
		return nil, outside.Error(err)
	case resp.StatusCode != http.StatusOK:
		return nil, &errStatus{resp.StatusCode, said(data)}
	}
	return data, nil
}

// said returns the lines of an answer that say what is wrong: API servers mark them with [-].
func said(body []byte) string {
	var out []string
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[-]") && len(out) < maxSaid {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return outside.Text(first)
	}
	return outside.Text(strings.Join(out, ", "))
}
