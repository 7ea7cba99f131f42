// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

const (
	errNoKubeconfig = words("no kubeconfig names them")
	errNoAuthority  = words("no certificate-authority")
)

// lister lists the API servers of the cluster that a kubeconfig leads to. It does not use proxy-url: these are nodes of
// the same cluster.
type lister struct {
	identity
	server  string   // URL
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
		if err == nil && len(c.Authorities) == 0 {
			err = errNoAuthority
		}
		if err == nil {
			i := identity{authorities: c.Authorities, name: c.TLS.ServerName, pairs: c.TLS.Certificates, token: c.Token}
			return lister{identity: i, server: c.Server, skipped: skipped}, nil
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
