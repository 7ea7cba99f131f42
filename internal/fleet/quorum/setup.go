// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"encoding/json"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/argv"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/manifests"
)

// settings are the relevant settings of an etcd, as in its configuration file.
type settings struct {
	Listen    string   `json:"listen-client-urls"` // comma-separated URLs, as the others
	Advertise string   `json:"advertise-client-urls"`
	Peers     string   `json:"initial-advertise-peer-urls"`
	TLS       struct { // container paths
		Cert       string `json:"cert-file"`
		Key        string `json:"key-file"`
		ClientCert string `json:"client-cert-file"`
		ClientKey  string `json:"client-key-file"`
		CA         string `json:"trusted-ca-file"`
	} `json:"client-transport-security"`
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
func (c container) etcdSettings(root string) (s settings, err error) {
	env := c.environment()
	line, err := c.arguments(env, manifests.RoleEtcd)
	if err != nil {
		return s, err
	}
	given, err := parseFlags(line, append([]string{"name"}, etcdFlags...))
	if err != nil {
		return s, err
	}
	if len(c.EnvFrom) > 0 {
		return s, words("envFrom is not supported")
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
		return s, err
	}
	if file != "" {
		return c.configuration(root, file)
	}
	s.Listen, s.Advertise = given.list("listen-client-urls"), given.list("advertise-client-urls")
	s.Peers = given.list("initial-advertise-peer-urls")
	s.TLS.Cert, s.TLS.Key, s.TLS.CA = given.Last("cert-file"), given.Last("key-file"), given.Last("trusted-ca-file")
	s.TLS.ClientCert, s.TLS.ClientKey = given.Last("client-cert-file"), given.Last("client-key-file")
	return s, nil
}

// configuration reads a configuration file of etcd. Its keys are case-insensitive, as in etcd, which converts YAML to
// JSON.
func (c container) configuration(root, name string) (s settings, err error) {
	at, err := c.onHost(name)
	if err != nil {
		return s, err
	}
	data, err := nodefile.Read(filepath.Join("/", root, at), maxFile)
	if err != nil {
		return s, words("config-file " + name + ": " + err.Error())
	}
	var all map[string]any
	err = yaml.Unmarshal(data, &all)
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, words("config-file " + name + " cannot be read")
	}
	return s, nil
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
	listen, err := urls("listen-client-urls", cmp.Or(s.Listen, defaultListen))
	if err != nil {
		return etcd{}, err
	}
	e := etcd{file: p.file, isOwn: true}
	for _, at := range listen {
		e.urls = append(e.urls, atHome(at)...)
	}
	e.advertised, _ = urls("", s.Advertise) // unclear values are ignored
	e.peers, _ = urls("", s.Peers)
	files := s.TLS
	if e.authorities, err = p.bundle(root, files.CA, files.Cert); err != nil {
		return etcd{}, err
	}
	if files.ClientCert != "" || files.ClientKey != "" {
		files.Cert, files.Key = files.ClientCert, files.ClientKey
	}
	e.pairs, err = p.pair(root, files.Cert, files.Key)
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

// errShell is a script: what it does before it starts the program, and with which words, only a shell knows.
const errShell = words("cannot read its shell command: use plain flags")

var shells = []string{"sh", "bash", "ash", "dash"}

// wrappers start the program that follows them, with its flags.
var wrappers = []string{"nice", "ionice", "nohup", "tini", "dumb-init", "catatonit", "go-runner", "hyperkube"}

// arguments returns the words after the program in a container's command and arguments.
func (c container) arguments(env environment, program string) ([]string, error) {
	var line []string
	for _, word := range slices.Concat(c.Command, c.Args) {
		line = append(line, env.expand(word))
	}
	switch {
	case len(line) == 0 || strings.HasPrefix(line[0], "-"):
		return line, nil // of the image's entrypoint
	case slices.Contains(shells, path.Base(line[0])):
		return nil, errShell
	}
	return after(line, program)
}

// after returns the words after a program, at the start of a command or after a wrapper.
func after(command []string, program string) ([]string, error) {
	for n, word := range command {
		base := path.Base(word)
		isOld := n > 0 && path.Base(command[n-1]) == "hyperkube" && "kube-"+word == program
		if isOld || manifests.IsProgram(base, program) && !strings.HasSuffix(base, "-manager") { // kops' has other flags
			return command[n+1:], nil
		}
		if n == 0 && !slices.Contains(wrappers, base) {
			break
		}
	}
	return nil, words("its program is not " + program)
}

// flags are the values of a program's flags.
type flags struct{ argv.Flags }

// errFlags is a command line that the program rejects, or one with an unknown flag.
const errFlags = words("cannot read its arguments")

// parseFlags reads a command line that has flags alone. Those in known take the next word as their value in any case.
func parseFlags(line, known []string) (flags, error) {
	all, rest := argv.Parse(line, known)
	isEnded := len(rest) == 1 && rest[0] == "--" && line[len(line)-1] == "--"
	for name := range all {
		if strings.Contains(name, unknown) {
			return flags{}, errFlags
		}
	}
	if len(rest) > 0 && !isEnded {
		return flags{}, errFlags
	}
	return flags{all}, nil
}

// list returns the URL list of a flag: the last occurrence counts, unless it is one URL of an earlier list.
func (f flags) list(name string) string {
	list := ""
	for _, value := range f.Flags[name] {
		isIn := func(one string) bool { return strings.TrimSpace(one) == value }
		if !slices.ContainsFunc(strings.Split(list, ","), isIn) {
			list = value
		}
	}
	return list
}

// known returns a value that must be known.
func (f flags) known(name string) (string, error) {
	value := f.Last(name)
	if strings.Contains(value, unknown) {
		return "", words("the variable in " + name + " is not set")
	}
	return value, nil
}

// urls returns the URLs of a comma-separated list, as scheme and host. It omits values that are unknown, or not URLs of
// http or https; it is an error if none is left.
func urls(name, list string) ([]string, error) {
	var out []string
	bad := false
	for one := range strings.SplitSeq(list, ",") {
		at, ok := placeOf(strings.TrimSpace(one))
		if !ok {
			bad = bad || one != ""
			continue
		}
		out = append(out, at)
	}
	if bad && len(out) == 0 {
		if strings.Contains(list, unknown) {
			return nil, words("the variable in " + name + " is not set")
		}
		return nil, words("the URLs of " + name + " cannot be read")
	}
	return out[:min(len(out), maxURLs)], nil
}

var hostName = lazyregexp.New(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// placeOf returns scheme and host of a URL with a port and nothing else. Other URLs are rejected: the source of an
// address must not choose the path of the request.
func placeOf(text string) (place string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.ForceQuery ||
		u.RawQuery != "" || strings.Contains(text, "#") || u.Path != "" && u.Path != "/" {
		return "", false
	}
	host, port := u.Hostname(), u.Port()
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); err != nil && !hostName().MatchString(host) || ip.Zone() != "" {
		return "", false
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port), true
}

func isHTTPS(place string) bool { return strings.HasPrefix(place, "https://") }

// hostOf returns host:port of a place.
func hostOf(place string) string {
	_, host, _ := strings.Cut(place, "://")
	return host
}

// atHome returns the local addresses for a listen address, because a wildcard address cannot be called.
func atHome(place string) []string {
	scheme, at, _ := strings.Cut(place, "://")
	host, port, _ := net.SplitHostPort(at)
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil || !ip.IsUnspecified():
		return []string{place}
	case ip.Is4():
		return []string{scheme + "://" + net.JoinHostPort("127.0.0.1", port)}
	}
	return []string{scheme + "://" + net.JoinHostPort("127.0.0.1", port), scheme + "://" + net.JoinHostPort("::1", port)}
}

// isLoopback reports whether a place is always on the calling machine.
func isLoopback(place string) bool {
	host, _, _ := net.SplitHostPort(hostOf(place))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
}
