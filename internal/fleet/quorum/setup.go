// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/argv"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/manifests"
)

// settings are the relevant settings of an etcd.
type settings struct {
	listen    string // comma-separated URLs, as the others
	advertise string
	peers     string
	cert, key string // container paths
	client    [2]string
	authority string
}

// etcdFlags are the flags that are read. Each is also a variable: ETCD_NAME for name.
var etcdFlags = []string{
	"listen-client-urls", "advertise-client-urls", "initial-advertise-peer-urls",
	"cert-file", "key-file", "client-cert-file", "client-key-file", "trusted-ca-file", "config-file",
}

// defaultListen is etcd's default listen address.
const defaultListen = "http://localhost:2379"

// etcdSettings reads the settings of an etcd in all forms: a flag overrides a variable, and a configuration file
// overrides all flags and variables.
func (c container) etcdSettings(root string) (settings, error) {
	env := c.environment()
	line, err := c.arguments(env, manifests.RoleEtcd)
	if err != nil {
		return settings{}, err
	}
	given, err := parseFlags(line, append([]string{"name"}, etcdFlags...))
	if err != nil {
		return settings{}, err
	}
	if len(c.EnvFrom) > 0 {
		return settings{}, words("envFrom is not supported")
	}
	for _, name := range etcdFlags {
		value := env["ETCD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
		isSet := len(given.Flags[name]) > 0
		if name == "config-file" { // an empty flag counts as unset
			isSet = given.Last(name) != ""
		}
		if value != "" && !isSet {
			given.Flags[name] = []string{value}
		}
	}
	file, err := given.known("config-file")
	if err != nil {
		return settings{}, err
	}
	if file != "" {
		return c.configuration(root, file)
	}
	return settings{
		listen: given.list("listen-client-urls"), advertise: given.list("advertise-client-urls"),
		peers: given.list("initial-advertise-peer-urls"),
		cert:  given.Last("cert-file"), key: given.Last("key-file"), authority: given.Last("trusted-ca-file"),
		client: [2]string{given.Last("client-cert-file"), given.Last("client-key-file")},
	}, nil
}

// configuration reads a configuration file of etcd. Its keys are case-insensitive, as in etcd, which converts YAML to
// JSON.
func (c container) configuration(root, name string) (settings, error) {
	at, err := c.onHost(name)
	if err != nil {
		return settings{}, err
	}
	data, err := nodefile.Read(filepath.Join("/", root, at), maxFile)
	if err != nil {
		return settings{}, words("config-file " + name + ": " + err.Error())
	}
	var all map[string]any
	var f struct {
		Listen    string `json:"listen-client-urls"`
		Advertise string `json:"advertise-client-urls"`
		Peers     string `json:"initial-advertise-peer-urls"`
		TLS       struct {
			Cert       string `json:"cert-file"`
			Key        string `json:"key-file"`
			ClientCert string `json:"client-cert-file"`
			ClientKey  string `json:"client-key-file"`
			CA         string `json:"trusted-ca-file"`
		} `json:"client-transport-security"`
	}
	err = yaml.Unmarshal(data, &all)
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return settings{}, words("config-file " + name + " cannot be read")
	}
	return settings{
		listen: f.Listen, advertise: f.Advertise, peers: f.Peers, cert: f.TLS.Cert, key: f.TLS.Key, authority: f.TLS.CA,
		client: [2]string{f.TLS.ClientCert, f.TLS.ClientKey},
	}, nil
}

// etcd is an etcd found in a program of this node.
type etcd struct {
	identity
	file  string   // the pod manifest
	urls  []string // its client URLs
	isOwn bool     // it runs on this node, and urls are its listen addresses
	// The URLs with which other nodes reach the member of this node.
	advertised, peers []string
}

// ownEtcd returns an etcd of this node.
func (p program) ownEtcd(root string) (etcd, error) {
	s, err := p.etcdSettings(root)
	if err != nil {
		return etcd{}, err
	}
	if s.listen == "" {
		s.listen = defaultListen
	}
	listen, err := urls("listen-client-urls", s.listen)
	if err != nil {
		return etcd{}, err
	}
	e := etcd{file: p.file, isOwn: true}
	for _, at := range listen {
		e.urls = append(e.urls, atHome(at)...)
	}
	e.advertised, _ = urls("", s.advertise) // unclear values are ignored
	e.peers, _ = urls("", s.peers)
	if e.authorities, err = p.bundle(root, s.authority, s.cert); err != nil {
		return etcd{}, err
	}
	if s.client != [2]string{} {
		s.cert, s.key = s.client[0], s.client[1]
	}
	e.pairs, err = p.pair(root, s.cert, s.key)
	return e, err
}

// apiFlags are the flags of an API server that are read.
var apiFlags = []string{
	"etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
	"advertise-address", "bind-address", "secure-port", "client-ca-file", "tls-cert-file",
}

// apiFlags returns the flags of an API server.
func (p program) apiFlags() (flags, error) {
	line, err := p.arguments(p.environment(), manifests.RoleAPIServer)
	if err != nil {
		return flags{}, err
	}
	return parseFlags(argv.Dashed(line), apiFlags)
}

// usedEtcd returns the etcd that an API server of this node uses.
func (p program) usedEtcd(root string, api flags) (etcd, error) {
	list := strings.Join(api.Flags["etcd-servers"], ",") // all occurrences
	all, err := urls("etcd-servers", list)
	if err == nil && len(all) == 0 {
		err = words("etcd-servers is not set")
	}
	e := etcd{file: p.file, urls: all}
	if err == nil {
		e.authorities, err = p.bundle(root, api.Last("etcd-cafile"))
	}
	if err == nil {
		e.pairs, err = p.pair(root, api.Last("etcd-certfile"), api.Last("etcd-keyfile"))
	}
	return e, err
}
