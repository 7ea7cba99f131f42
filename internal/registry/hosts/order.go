// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// Host is containerd's view of one host of a namespace.
type Host struct {
	URL  string // its scheme and its name with its port: https://registry.suse.com
	made docker.RegistryHost
}

// FindDir returns the registry directory that containerd uses for a namespace; empty if there is none.
func FindDir(certsDirs []string, namespace string) (string, error) {
	dir, err := firstDir(certsDirs)(namespace)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return dir, err
}

// Order returns the hosts of a namespace in containerd's order, as its parser reads them from a directory of certs.d;
// an empty directory has none. It returns an error if containerd would use nothing of its hosts.toml.
func Order(ctx context.Context, dir, namespace string) ([]Host, error) {
	if dir != "" {
		if err := checkDir(dir); err != nil {
			return nil, err
		}
	}
	logged := new(errorLog)
	made, err := config.ConfigureHosts(log.WithLogger(ctx, logged.logger()), config.HostOptions{
		HostDir: func(string) (string, error) {
			if dir == "" {
				return "", errdefs.ErrNotFound
			}
			return dir, nil
		},
	})(namespace)
	if err = cmp.Or(err, logged.err); err != nil {
		return nil, refused(err)
	}
	order := make([]Host, len(made))
	for i, m := range made {
		order[i] = Host{URL: m.Scheme + "://" + m.Host, made: m}
	}
	return order, nil
}

// Same reports whether containerd would ask both in the same way. It cannot compare their dial_timeout.
func (h Host) Same(o Host) bool {
	a, b := h.made, o.made
	return a.Scheme == b.Scheme && a.Host == b.Host && a.Path == b.Path && a.Capabilities == b.Capabilities &&
		reflect.DeepEqual(a.Header, b.Header) && sameTransport(a.Client.Transport, b.Client.Transport)
}

// sameTransport compares the client certificates and the verification of TLS; containerd wraps the transport of a host
// that may be asked without TLS.
func sameTransport(a, b http.RoundTripper) bool {
	x, plain := a.(*http.Transport)
	y, alsoPlain := b.(*http.Transport)
	if !plain || !alsoPlain {
		return fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b)
	}
	p, q := x.TLSClientConfig, y.TLSClientConfig
	if p.InsecureSkipVerify != q.InsecureSkipVerify || (p.RootCAs == nil) != (q.RootCAs == nil) ||
		len(p.Certificates) != len(q.Certificates) {
		return false
	}
	for i, c := range p.Certificates {
		if !slices.EqualFunc(c.Certificate, q.Certificates[i].Certificate, slices.Equal) {
			return false
		}
	}
	return p.RootCAs == nil || p.RootCAs.Equal(q.RootCAs)
}

// Files returns the files that a hosts.toml names: certificates and authorities, as written.
func Files(file string) []string {
	names := filesOf(tables(file))
	slices.Sort(names)
	return names
}
