// SPDX-License-Identifier: Apache-2.0

//go:build neighbours

package neighbours

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
)

// askedEtcd answers with etcd's own code, in this process.
func askedEtcd(t *testing.T, root string) func([]byte) []byte {
	t.Helper()
	return func(question []byte) []byte {
		var in etcdInput
		require.NoError(t, json.Unmarshal(question, &in))
		read, err := in.byEtcd(t, root)
		if err != nil {
			read = etcdReading{Refused: true}
		}
		return inJSON(t, read)
	}
}

// byEtcd reads an input with etcd's own code, as etcdmain does.
func (in etcdInput) byEtcd(t *testing.T, root string) (etcdReading, error) {
	t.Helper()
	config := embed.NewConfig()
	set := flag.NewFlagSet("etcd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	config.AddFlags(set)
	file := set.String("config-file", "", "")
	if err := set.Parse(in.Args); err != nil {
		return etcdReading{}, err
	}
	if set.NArg() > 0 {
		return etcdReading{}, errors.New("not a flag")
	}
	if *file == "" {
		*file = in.Env["ETCD_CONFIG_FILE"]
	}
	var urls []url.URL
	var err error
	if *file != "" {
		config, urls, err = ofFile(filepath.Join(root, *file))
	} else {
		urls, err = in.ofFlags(t, set)
	}
	if err != nil {
		return etcdReading{}, err
	}
	var out etcdReading
	for _, u := range urls {
		if u.Scheme == "http" || u.Scheme == "https" {
			out.At = append(out.At, u.Host)
		}
	}
	tls := config.ClientTLSInfo
	for _, name := range []string{tls.CertFile, tls.KeyFile, tls.TrustedCAFile} {
		isAsked := name != tls.KeyFile || tls.CertFile != ""
		if strings.Contains(name, "none") && isAsked {
			out.Missing = append(out.Missing, name)
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
func (in etcdInput) ofFlags(t *testing.T, set *flag.FlagSet) (urls []url.URL, err error) {
	t.Helper()
	set.Visit(func(f *flag.Flag) {
		if _, is := in.Env[flags.FlagToEnv("ETCD", f.Name)]; is {
			err = errors.New("a flag and its variable, with which etcd ends")
		}
	})
	if err != nil {
		return nil, err
	}
	for name, value := range in.Env {
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

// askedClientcmd answers with client-go's own code, in this process.
func askedClientcmd(t *testing.T, path string) func([]byte) []byte {
	t.Helper()
	return func([]byte) []byte {
		c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{}).ClientConfig()
		if err != nil {
			return inJSON(t, clientcmdReading{Refused: true})
		}
		return inJSON(t, clientcmdReading{
			Host: c.Host, ServerName: c.ServerName, Authorities: len(c.CAData) > 0 || c.CAFile != "",
			Certificate: (len(c.CertData) > 0 || c.CertFile != "") && (len(c.KeyData) > 0 || c.KeyFile != ""),
			Token:       c.BearerToken, TokenFile: c.BearerTokenFile, Proxy: c.Proxy != nil,
			Others: c.ExecProvider != nil || c.AuthProvider != nil || c.Insecure || c.Username+c.Impersonate.UserName != "",
		})
	}
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
