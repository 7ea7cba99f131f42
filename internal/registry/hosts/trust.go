// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// maxBundle is for the authorities of a system. SUSE's bundle has 230 kB.
const maxBundle = 16 << 20

var errNoCertificates = errors.New("no certificates")

// Trust are the system's certificate authorities, read again when an admin adds
// or removes one. Go reads them once for the life of a process, and this one
// lives for months.
type Trust struct {
	bundles []*nodefile.Cached[*x509.CertPool]
	log     *slog.Logger

	mu   sync.Mutex
	last *x509.CertPool // nil: none was ever found
}

// NewTrust knows the places below root; nothing is read yet. Getenv reads the
// environment: SSL_CERT_FILE is the only place where it is set, as for Go
// itself. The log, which may be nil, gets a line for what cannot be used.
func NewTrust(root string, getenv func(string) string, log *slog.Logger) *Trust {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	places := []string{
		// What update-ca-certificates of SUSE writes, and where it is written: a link
		// of /etc may be absolute, and so lead out of another root.
		"/etc/ssl/ca-bundle.pem",
		"/var/lib/ca-certificates/ca-bundle.pem",
		// Debian's, Fedora's.
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

// Roots gives the authorities of the first bundle that can be used; the pointer
// changes when they do. Where none can, the last that could stay in force: a
// bundle that is just being written must not end all polling. nil: there never
// was one, and Go's own rules hold.
func (t *Trust) Roots() *x509.CertPool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, bundle := range t.bundles {
		pool, changed, err := bundle.Get()
		if changed && err != nil {
			t.log.Warn("certificate authorities not used", "err", err)
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
