// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// kubeconfig is how a cluster is asked.
type kubeconfig struct {
	identity
	server string // URL
}

const (
	errKubeconfig   = words("no kubeconfig with server, authority and certificate or token")
	errNoKubeconfig = words("there is no kubeconfig that names them")
)

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
		Name    string       `yaml:"name"`
		Cluster clusterEntry `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string    `yaml:"name"`
		User userEntry `yaml:"user"`
	} `yaml:"users"`
}

type clusterEntry struct {
	Server string `yaml:"server"`
	CA     string `yaml:"certificate-authority"`
	CAData string `yaml:"certificate-authority-data"`
}

type userEntry struct {
	Cert     string `yaml:"client-certificate"`
	CertData string `yaml:"client-certificate-data"`
	Key      string `yaml:"client-key"`
	KeyData  string `yaml:"client-key-data"`
	Token    string `yaml:"token"`
}

// readKubeconfig returns the first of these kubeconfigs below root that can be used.
func readKubeconfig(root string, names []string) (k kubeconfig, err error) {
	var failed []string
	for _, name := range names {
		data, errRead := nodefile.Read(filepath.Join("/", root, name), maxFile)
		if errors.Is(errRead, fs.ErrNotExist) {
			continue
		}
		if errRead == nil {
			k, errRead = parseKubeconfig(root, data)
		}
		if errRead == nil {
			return k, nil
		}
		failed = append(failed, name+": "+errRead.Error())
	}
	if failed == nil {
		return kubeconfig{}, errNoKubeconfig
	}
	return kubeconfig{}, words(strings.Join(failed, "; "))
}

// current returns cluster and user of the current context; what it does not name is empty.
func (f file) current() (c clusterEntry, u userEntry) {
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
	at, err := url.Parse(c.Server)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" {
		return kubeconfig{}, errKubeconfig
	}
	k := kubeconfig{server: strings.TrimSuffix(c.Server, "/")}
	if k.authorities, err = (container{}).bundle(root, c.CA); err != nil {
		return kubeconfig{}, err
	}
	if k.pairs, err = (container{}).pair(root, u.Cert, u.Key); err != nil {
		return kubeconfig{}, err
	}
	if ca, err := base64.StdEncoding.DecodeString(c.CAData); err == nil && len(ca) > 0 {
		k.authorities = ca
	}
	cert, errCert := base64.StdEncoding.DecodeString(u.CertData)
	key, errKey := base64.StdEncoding.DecodeString(u.KeyData)
	if errCert == nil && errKey == nil && len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return kubeconfig{}, errKubeconfig
		}
		k.pairs = []tls.Certificate{pair}
	}
	k.token = u.Token
	if !x509.NewCertPool().AppendCertsFromPEM(k.authorities) || k.pairs == nil && k.token == "" {
		return kubeconfig{}, errKubeconfig
	}
	return k, nil
}
