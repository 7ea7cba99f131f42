// SPDX-License-Identifier: Apache-2.0

// Package neighbours compares how the agent reads files and responses of other programs with how the programs' own code
// reads them.
package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// setting is one setting of etcd, and the ways in which it is set.
type setting struct {
	name   string
	values []string
}

var (
	urls = []string{
		"http://10.0.0.1:2379", "http://10.0.0.1:2379,https://10.0.0.2:2379", "http://10.0.0.3:1, http://10.0.0.4:1", "http://0.0.0.0:2379",
		"http://[::1]:2379", "http://localhost:7", "unix://localhost:1,http://10.0.0.5:1",
	}
	settings = []setting{
		{"listen-client-urls", urls},
		{"listen-client-urls", urls},
		{"advertise-client-urls", urls},
		{"name", []string{"a", "-a", "--listen-client-urls=http://10.9.9.9:1", ""}},
		{"cert-file", []string{"/pki/a.crt", "/pki/none.crt"}},
		{"key-file", []string{"/pki/a.key", "/pki/none.key"}},
		{"trusted-ca-file", []string{"/pki/ca.crt", "/pki/none-ca.crt"}},
		{"data-dir", []string{"/d"}},
		{"quota-backend-bytes", []string{"8589934592"}},
		{"listen-client-http-urls", urls},
		{"client-cert-auth", []string{"true", "false"}},
		{"pre-vote", []string{"true"}},
	}
	switches = []string{"client-cert-auth", "pre-vote"}
)

// input is the configuration of an etcd.
type input struct {
	args []string
	env  map[string]string
	file string // content of the configuration file; empty: no file
}

func randomInput(r *rand.Rand) input {
	in := input{env: map[string]string{}}
	pick := func() (setting, string) {
		s := settings[r.IntN(len(settings))]
		return s, s.values[r.IntN(len(s.values))]
	}
	for range r.IntN(6) {
		s, value := pick()
		dashes := []string{"-", "--"}[r.IntN(2)]
		switch isSwitch := slices.Contains(switches, s.name); {
		case isSwitch && r.IntN(2) == 0:
			in.args = append(in.args, dashes+s.name)
		case isSwitch || r.IntN(2) == 0:
			in.args = append(in.args, dashes+s.name+"="+value)
		default:
			in.args = append(in.args, dashes+s.name, value)
		}
	}
	for range r.IntN(4) {
		s, value := pick()
		in.env[flags.FlagToEnv("ETCD", s.name)] = value
	}
	if r.IntN(3) > 0 {
		return in
	}
	top, security := map[string]any{}, map[string]any{}
	for range r.IntN(6) {
		s, value := pick()
		key := s.name
		if r.IntN(4) == 0 {
			key = strings.ToUpper(key[:1]) + key[1:]
		}
		switch {
		case slices.Contains(switches, s.name) || s.name == "quota-backend-bytes":
		case strings.HasSuffix(s.name, "-file"):
			security[key] = value
		default:
			top[key] = value
		}
	}
	if len(security) > 0 {
		top["client-transport-security"] = security
	}
	top["log-outputs"] = []string{"/dev/null"}
	data, _ := json.Marshal(top)
	in.file = string(data) // JSON is YAML, too
	if r.IntN(2) == 0 {
		in.args = append(in.args, "--config-file=/etc/etcd.yaml")
	} else {
		in.env["ETCD_CONFIG_FILE"] = "/etc/etcd.yaml"
	}
	return in
}

// reading is the result of reading an input.
type reading struct {
	at      []string // client URLs of this node, sorted
	missing []string // files that the input names and that do not exist
}

// byEtcd reads an input with etcd's own code, as etcdmain does.
func (in input) byEtcd(t *testing.T, root string) (reading, error) {
	t.Helper()
	config := embed.NewConfig()
	set := flag.NewFlagSet("etcd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	config.AddFlags(set)
	file := set.String("config-file", "", "")
	if err := set.Parse(in.args); err != nil {
		return reading{}, err
	}
	if set.NArg() > 0 {
		return reading{}, errors.New("not a flag")
	}
	if *file == "" {
		*file = in.env["ETCD_CONFIG_FILE"]
	}
	var urls []url.URL
	var err error
	if *file != "" {
		config, urls, err = ofFile(filepath.Join(root, *file))
	} else {
		urls, err = in.ofFlags(t, set)
	}
	if err != nil {
		return reading{}, err
	}
	var out reading
	for _, u := range urls {
		if u.Scheme == "http" || u.Scheme == "https" {
			out.at = append(out.at, u.Host)
		}
	}
	tls := config.ClientTLSInfo
	for _, name := range []string{tls.CertFile, tls.KeyFile, tls.TrustedCAFile} {
		isAsked := name != tls.KeyFile || tls.CertFile != ""
		if strings.Contains(name, "none") && isAsked {
			out.missing = append(out.missing, name)
		}
	}
	return out, nil
}

// ofFile reads a configuration file, and returns the client URLs of an etcd that uses it.
func ofFile(path string) (*embed.Config, []url.URL, error) {
	config, err := embed.ConfigFromFile(path)
	if err != nil {
		return nil, nil, err
	}
	urls := config.ListenClientUrls
	if config.FlagsExplicitlySet["advertise-client-urls"] || config.FlagsExplicitlySet["Advertise-client-urls"] {
		urls = slices.Concat(urls, config.AdvertiseClientUrls)
	}
	return config, urls, nil
}

// ofFlags returns the client URLs of an etcd with these flags and the input's variables.
func (in input) ofFlags(t *testing.T, set *flag.FlagSet) (urls []url.URL, err error) {
	t.Helper()
	set.Visit(func(f *flag.Flag) {
		if _, is := in.env[flags.FlagToEnv("ETCD", f.Name)]; is {
			err = errors.New("a flag and its variable, with which etcd ends")
		}
	})
	if err != nil {
		return nil, err
	}
	for name, value := range in.env {
		t.Setenv(name, value)
	}
	if err := flags.SetFlagsFromEnv(zap.NewNop(), "ETCD", set); err != nil {
		return nil, err
	}
	urls = flags.UniqueURLsFromFlag(set, "listen-client-urls")
	if flags.IsSet(set, "advertise-client-urls") {
		urls = slices.Concat(urls, flags.UniqueURLsFromFlag(set, "advertise-client-urls"))
	}
	return urls, nil
}

// byAgent reads an input from a pod manifest with the agent's code.
func (in input) byAgent(t *testing.T, root string) (at []string, err error) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  containers:\n  - name: etcd\n    command: [etcd]\n    args: "
	args, err := json.Marshal(append([]string{}, in.args...))
	require.NoError(t, err)
	text += string(args) + "\n    env:\n"
	for name, value := range in.env {
		text += fmt.Sprintf("    - {name: %s, value: %q}\n", name, value)
	}
	var mu sync.Mutex
	seen := quorum.Control{Root: root, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, address)
		return nil, syscall.ECONNREFUSED
	}}.Observe(t.Context(), []node.PodFile{{Name: "etcd.yaml", Data: []byte(text)}})
	return at, seen.Err
}

// sorted returns the addresses on this node, sorted and without duplicates.
func sorted(all []string) []string {
	var out []string
	for _, at := range all {
		out = append(out, strings.Replace(at, "0.0.0.0", "127.0.0.1", 1))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestEtcdsSettingsAreReadAsByEtcd checks that the agent asks etcd at the URLs that etcd's own code reads from flags,
// variables and configuration files, and reads the same files. It skips inputs with which etcd does not start.
func TestEtcdsSettingsAreReadAsByEtcd(t *testing.T) {
	ca, cert, key := registrytest.Certificate(t)
	root := t.TempDir()
	for name, from := range map[string]string{"ca.crt": ca, "a.crt": cert, "a.key": key} {
		registrytest.Put(t, root, "/pki/"+name, registrytest.Text(t, from))
	}
	rounds, r := inputs(t, 1500)
	compared := 0
	for n := range rounds {
		in := randomInput(r)
		require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
		registrytest.Put(t, root, "/etc/etcd.yaml", in.file)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want, err := in.byEtcd(t, root)
			if err != nil {
				return
			}
			compared++
			at, err := in.byAgent(t, root)
			require.Error(t, err)
			if len(want.missing) > 0 {
				assert.Empty(t, at, "%+v", in)
				assert.True(t, slices.ContainsFunc(want.missing, func(name string) bool {
					return strings.Contains(err.Error(), name+": no such file")
				}), "%v: want %q: %+v", err, want.missing, in)
				return
			}
			assert.Equal(t, sorted(want.at), sorted(at), "%+v: %v", in, err)
		})
	}
	assert.Greater(t, compared, rounds/3)
}

// TestEtcdWithURLsForHTTP checks that the newest etcd answers at its client URLs even if it has separate URLs for HTTP.
func TestEtcdWithURLsForHTTP(t *testing.T) {
	t.Parallel()
	at := func() url.URL { return url.URL{Scheme: "http", Host: freeAddress(t)} }
	config := embed.NewConfig()
	config.Dir, config.LogOutputs = t.TempDir(), []string{"/dev/null"}
	client, http, peer := at(), at(), at()
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenClientHttpUrls = []url.URL{http}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  containers:\n  - name: etcd\n    command: [etcd, '" +
		"--listen-client-urls=" + client.String() + "', '--listen-client-http-urls=" + http.String() + "']\n"
	seen := quorum.Control{}.Observe(t.Context(), []node.PodFile{{Name: "etcd.yaml", Data: []byte(text)}})
	require.NoError(t, seen.Err)
	assert.Equal(t, []fleet.Part{{Name: "etcd member default", Local: true, Healthy: true}}, seen.Members)
}
