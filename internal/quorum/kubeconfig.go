// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// kubeconfigs are where kubeadm writes them; the first that can be used is used.
var kubeconfigs = []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf"}

// kubeconfig is how a cluster is asked.
type kubeconfig struct {
	identity
	server string // URL
}

var errKubeconfig = errors.New("no kubeconfig with server, authority and certificate or token")

// file is a kubeconfig as it is written. Programs that fetch credentials are not run.
type file struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
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

type cluster struct {
	Server string `yaml:"server"`
	CA     string `yaml:"certificate-authority"`
	CAData string `yaml:"certificate-authority-data"`
}

type user struct {
	Cert     string `yaml:"client-certificate"`
	CertData string `yaml:"client-certificate-data"`
	Key      string `yaml:"client-key"`
	KeyData  string `yaml:"client-key-data"`
	Token    string `yaml:"token"`
}

// readKubeconfig returns the first kubeconfig below root that can be used. ok is false where there is none.
func readKubeconfig(root string) (k kubeconfig, ok bool, err error) {
	for _, name := range kubeconfigs {
		data, errRead := trustedfile.Read(filepath.Join("/", root, name), maxFile)
		if errors.Is(errRead, fs.ErrNotExist) || errors.Is(errRead, fs.ErrPermission) {
			continue
		}
		if errRead == nil {
			k, errRead = parseKubeconfig(root, data)
		}
		if errRead == nil {
			return k, true, nil
		}
		err = errors.Join(err, fmt.Errorf("%s: %w", name, errRead))
	}
	return kubeconfig{}, err != nil, err
}

// current returns cluster and user of the current context; what it does not name is empty.
func (f file) current() (c cluster, u user) {
	for _, context := range f.Contexts {
		if context.Name != f.Current {
			continue
		}
		for _, one := range f.Clusters {
			if one.Name == context.Context.Cluster {
				c = one.Cluster
			}
		}
		for _, one := range f.Users {
			if one.Name == context.Context.User {
				u = one.User
			}
		}
	}
	return c, u
}

// parseKubeconfig reads the current context. Errors have nothing of what was read: it may be a secret.
func parseKubeconfig(root string, data []byte) (kubeconfig, error) {
	var f file
	if yaml.Unmarshal(data, &f) != nil {
		return kubeconfig{}, errKubeconfig
	}
	c, u := f.current()
	if at, err := url.Parse(c.Server); err != nil || at.Scheme != "https" || at.Host == "" {
		return kubeconfig{}, errKubeconfig
	}
	id, err := identityOf(root, u.Cert, u.Key, c.CA)
	if err != nil {
		return kubeconfig{}, err
	}
	if ca, errCA := base64.StdEncoding.DecodeString(c.CAData); errCA == nil && len(ca) > 0 {
		id.roots = x509.NewCertPool()
		if !id.roots.AppendCertsFromPEM(ca) {
			return kubeconfig{}, errKubeconfig
		}
	}
	cert, errCert := base64.StdEncoding.DecodeString(u.CertData)
	key, errKey := base64.StdEncoding.DecodeString(u.KeyData)
	if errCert == nil && errKey == nil && len(cert) > 0 && id.show(cert, key) != nil {
		return kubeconfig{}, errKubeconfig
	}
	id.token = u.Token
	if id.roots == nil || id.pair == nil && id.token == "" {
		return kubeconfig{}, errKubeconfig
	}
	return kubeconfig{identity: id, server: c.Server}, nil
}
