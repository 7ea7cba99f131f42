// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// maxBundle limits a system's authorities. SUSE's bundle has 230 kB.
const maxBundle = 16 << 20

var errNoCertificates = errors.New("no certificates")

// Trust has the system's certificate authorities, read again when an admin adds or removes one. Go reads them once per
// process, and the daemon runs for months.
type Trust struct {
	bundles []*nodefile.Cached[*x509.CertPool]
	log     *slog.Logger

	mu   sync.Mutex
	last *x509.CertPool // nil: none found so far
}

// NewTrust returns the authorities below root without reading anything yet. With SSL_CERT_FILE in the environment, read
// through getenv, only that file is used, as in Go. log, which may be nil, receives a line for each unusable file.
func NewTrust(root string, getenv func(string) string, log *slog.Logger) *Trust {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	places := []string{
		// The output of SUSE's update-ca-certificates, and its original place: a link in /etc may be absolute, and so
		// leave another root.
		"/etc/ssl/ca-bundle.pem",
		"/var/lib/ca-certificates/ca-bundle.pem",
		// Debian's and Fedora's.
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	}
	if only := getenv("SSL_CERT_FILE"); only != "" {
		places = []string{only}
	}
	t := &Trust{log: log}
	for _, place := range places {
		t.bundles = append(t.bundles, &nodefile.Cached[*x509.CertPool]{
			Path: filepath.Join("/", root, place), Limit: maxBundle, AnyOwner: true, Parse: parseBundle,
		})
	}
	return t
}

// Roots returns the authorities of the first usable bundle; the pointer changes when they do. If none is usable, the
// last usable ones stay in use, because a bundle that is just being written must not end all polling. nil: none so far,
// and Go's rules apply.
func (t *Trust) Roots() *x509.CertPool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, bundle := range t.bundles {
		pool, changed, err := bundle.Get()
		if changed && err != nil {
			t.log.Warn("cannot use certificate authorities", "err", err)
		}
		if pool != nil {
			t.last = pool
			break
		}
	}
	return t.last
}

func parseBundle(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errNoCertificates
	}
	return pool, nil
}
