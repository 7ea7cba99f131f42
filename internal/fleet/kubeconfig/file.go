// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"
)

// file is a kubeconfig as it is written, see k8s.io/client-go/tools/clientcmd/api/v1.
type file struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Current    string `yaml:"current-context"`
	Contexts   []struct {
		Name    string `yaml:"name"`
		Context pair   `yaml:"context"`
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

type pair struct {
	Cluster string `yaml:"cluster"`
	User    string `yaml:"user"`
}

type cluster struct {
	Server     string `yaml:"server"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	CA         string `yaml:"certificate-authority"`
	CAData     binary `yaml:"certificate-authority-data"`
	Proxy      string `yaml:"proxy-url"`
}

type user struct {
	Cert      string `yaml:"client-certificate"`
	CertData  binary `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   binary `yaml:"client-key-data"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`

	// Refused.
	Exec         yaml.Node           `yaml:"exec"`
	AuthProvider yaml.Node           `yaml:"auth-provider"`
	Username     string              `yaml:"username"`
	Password     string              `yaml:"password"`
	As           string              `yaml:"as"`
	AsUID        string              `yaml:"as-uid"`
	AsGroups     []string            `yaml:"as-groups"`
	AsExtra      map[string][]string `yaml:"as-user-extra"`
}

// refused returns why the agent does not use a user; empty if it does.
func (u user) refused() string {
	isSet := func(n yaml.Node) bool { return !n.IsZero() && n.Tag != "!!null" }
	switch {
	case isSet(u.Exec):
		return "exec: the agent does not run programs for credentials"
	case isSet(u.AuthProvider):
		return "auth-provider: the agent does not run programs for credentials"
	case u.Username != "" || u.Password != "":
		return "username and password are refused: want a client certificate or a token"
	case u.As != "" || u.AsUID != "" || len(u.AsGroups) > 0 || len(u.AsExtra) > 0:
		return "as: the agent does not act as another user"
	}
	return ""
}

// binary is data in base64.
type binary []byte

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *binary) UnmarshalYAML(n *yaml.Node) (err error) {
	if *b, err = base64.StdEncoding.DecodeString(n.Value); err != nil {
		return errors.New("not base64")
	}
	return nil
}

// current returns cluster and user of the current context.
func (f file) current() (c cluster, u user, err error) {
	if f.APIVersion != "" && f.APIVersion != "v1" || f.Kind != "" && f.Kind != "Config" {
		return c, u, errors.New("not a kubeconfig: want apiVersion v1 and kind Config")
	}
	if f.Current == "" {
		return c, u, errors.New("no current-context")
	}
	contexts, clusters, users := map[string]pair{}, map[string]cluster{}, map[string]user{}
	for _, one := range f.Contexts {
		contexts[one.Name] = one.Context
	}
	for _, one := range f.Clusters {
		clusters[one.Name] = one.Cluster
	}
	for _, one := range f.Users {
		users[one.Name] = one.User
	}
	if len(contexts) < len(f.Contexts) || len(clusters) < len(f.Clusters) || len(users) < len(f.Users) {
		return c, u, errors.New("two contexts, clusters or users have one name")
	}
	at, known := contexts[f.Current]
	c, hasCluster := clusters[at.Cluster]
	u, hasUser := users[at.User]
	switch {
	case !known:
		err = fmt.Errorf("current-context: no context %.64q", f.Current)
	case !hasCluster:
		err = fmt.Errorf("context %.64q: no cluster %.64q", f.Current, at.Cluster)
	case !hasUser:
		err = fmt.Errorf("context %.64q: no user %.64q", f.Current, at.User)
	}
	return c, u, err
}
