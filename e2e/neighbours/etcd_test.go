// SPDX-License-Identifier: Apache-2.0

// Package neighbours compares how the agent reads files and responses of other programs with how the programs' own code
// reads them.
package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
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

// etcdInput is the configuration of an etcd.
type etcdInput struct {
	Args []string
	Env  map[string]string
	File string // content of the configuration file; empty: no file
}

func randomInput(r *rand.Rand) etcdInput {
	in := etcdInput{Env: map[string]string{}}
	pick := func() (setting, string) {
		s := settings[r.IntN(len(settings))]
		return s, s.values[r.IntN(len(s.values))]
	}
	for range r.IntN(6) {
		s, value := pick()
		dashes := []string{"-", "--"}[r.IntN(2)]
		switch isSwitch := slices.Contains(switches, s.name); {
		case isSwitch && r.IntN(2) == 0:
			in.Args = append(in.Args, dashes+s.name)
		case isSwitch || r.IntN(2) == 0:
			in.Args = append(in.Args, dashes+s.name+"="+value)
		default:
			in.Args = append(in.Args, dashes+s.name, value)
		}
	}
	for range r.IntN(4) {
		s, value := pick()
		in.Env[etcdVariable(s.name)] = value
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
	in.File = string(data) // JSON is YAML, too
	if r.IntN(2) == 0 {
		in.Args = append(in.Args, "--config-file=/etc/etcd.yaml")
	} else {
		in.Env["ETCD_CONFIG_FILE"] = "/etc/etcd.yaml"
	}
	return in
}

// etcdReading is the result of reading an input.
type etcdReading struct {
	Refused bool     // etcd does not start
	At      []string // client URLs of this node
	Missing []string // files that the input names and that do not exist
}

// byAgent reads an input from a pod manifest with the agent's code.
func (in etcdInput) byAgent(t *testing.T, root string) (at []string, err error) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  containers:\n  - name: etcd\n    command: [etcd]\n    args: "
	args, err := json.Marshal(append([]string{}, in.Args...))
	require.NoError(t, err)
	text += string(args) + "\n    env:\n"
	for name, value := range in.Env {
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

// etcdVariable returns the variable of a setting.
func etcdVariable(name string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
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
	compared, etcd := 0, newJudge(t, "etcd-settings", required(t, "go.etcd.io/etcd/server/v3"))
	for n := range rounds {
		in := randomInput(r)
		require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
		registrytest.Put(t, root, "/etc/etcd.yaml", in.File)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			etcd.live = askedEtcd(t, root)
			var want etcdReading
			etcd.ask(in, &want, input{about: in.File})
			if want.Refused {
				return
			}
			compared++
			at, err := in.byAgent(t, root)
			require.Error(t, err)
			if len(want.Missing) > 0 {
				assert.Empty(t, at, "%+v", in)
				assert.True(t, slices.ContainsFunc(want.Missing, func(name string) bool {
					return strings.Contains(err.Error(), name+": no such file")
				}), "%v: want %q: %+v", err, want.Missing, in)
				return
			}
			assert.Equal(t, sorted(want.At), sorted(at), "%+v: %v", in, err)
		})
	}
	assert.Greater(t, compared, rounds/3)
}
