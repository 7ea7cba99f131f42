// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// hostTrees is the number of certs.d directories that the test compares for each version.
const hostTrees = 400

// TestHostsAreThoseOfContainerd checks that the agent asks the same hosts as containerd for a namespace, in the same
// order and way.
func TestHostsAreThoseOfContainerd(t *testing.T) {
	t.Parallel()
	for part, version := range containerds {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, hostTrees)
			ca, _, _ := registrytest.Certificate(t)
			c, top := startContainerd(t, "hosts", part), t.TempDir()
			hides := []string{registrytest.Text(t, ca), "a certificate"}
			asked, refused, purposes := 0, 0, map[string]int{}
			for n := range rounds {
				tree := hostFiles{r, registrytest.Text(t, ca)}
				dirs := []string{filepath.Join(top, fmt.Sprint(n), "a"), filepath.Join(top, fmt.Sprint(n), "b")}
				namespace := tree.one(hostNamespaces...)
				files := tree.all(namespace)
				for name, text := range files {
					put(t, filepath.Join(top, fmt.Sprint(n), name), text)
				}
				theirs := c.ask(containerdAsked{CertsDirs: dirs, Namespace: namespace}, input{dirs: []string{filepath.Join(top, fmt.Sprint(n))}, hides: hides})
				ours, err := hosts.New(dirs, plainHosts{}).Of(namespace)
				about := fmt.Sprintf("%d: %s\n%s", n, namespace, shown(files))
				switch why := onPurposeHosts(version, dirs, namespace); {
				case why != "":
					purposes[why]++
				case theirs.Err != "":
					refused++
					assert.Error(t, err, "%s\n%s", theirs.Err, about)
				case assert.NoError(t, err, about):
					asked++
					assert.Equal(t, theirs.Hosts, asAskedBy(version, described(ours), theirs.Hosts), about)
				}
			}
			t.Logf("asked: %d, refused: %d, on purpose: %v", asked, refused, purposes)
			assert.Greater(t, asked, rounds/8)
		})
	}
}

// onPurposeHosts returns why a containerd reads the directory of a namespace differently from the agent. doctor reports
// such hosts.toml files.
func onPurposeHosts(version string, dirs []string, namespace string) string {
	if strings.HasPrefix(version, "v2") {
		return ""
	}
	dir, _ := hosts.FindDir(dirs, namespace)
	text, _ := os.ReadFile(filepath.Join(dir, "hosts.toml"))
	switch {
	case strings.Contains("\n"+string(text), "\n[["):
		return "1.x ends with a panic"
	case toml.Unmarshal(text, &map[string]any{}) != nil:
		return "1.x takes what is no TOML 1.0"
	case strings.Contains(string(text), "X B"):
		return "1.x takes no key with a space"
	}
	all := hosts.Dirs(context.Background(), dirs)
	if n := slices.IndexFunc(all, func(d hosts.Dir) bool { return d.Path == dir }); n >= 0 {
		return all[n].Otherwise(version)
	}
	return ""
}

// asAskedBy removes an intentional difference: 1.6 uses plain HTTP at once for a host with http, no port and TLS
// settings, while other versions and the agent try HTTPS first.
func asAskedBy(version string, ours, theirs []containerdHost) []containerdHost {
	for n := range ours {
		if strings.HasPrefix(version, "1.6") && n < len(theirs) && theirs[n].Scheme == "http" && ours[n].Fallback {
			ours[n].Scheme, ours[n].Fallback = "http", false
		}
	}
	return ours
}

// plainHosts returns the hosts of containerd's parser without clients.
type plainHosts struct{}

func (plainHosts) UpdateClient(*http.Client) error { return nil }
func (plainHosts) Authorize([]docker.RegistryHost) {}
func (plainHosts) Roots() *x509.CertPool           { return nil }

// described converts hosts to the form in which reads prints them.
func described(all []docker.RegistryHost) []containerdHost {
	out := []containerdHost{}
	for _, h := range all {
		one := containerdHost{
			Scheme: h.Scheme, Host: h.Host, Path: h.Path, Header: h.Header,
			Pull: h.Capabilities.Has(docker.HostCapabilityPull), Resolve: h.Capabilities.Has(docker.HostCapabilityResolve),
		}
		transport, is := h.Client.Transport.(*http.Transport)
		if !is {
			one.Fallback = true
			inner := reflect.ValueOf(h.Client.Transport).Elem().Field(0)
			transport = reflect.NewAt(inner.Type(), unsafe.Pointer(inner.UnsafeAddr())).Elem().Interface().(*http.Transport)
		}
		tls := transport.TLSClientConfig
		one.SkipVerify, one.Authorities, one.Certificates = tls.InsecureSkipVerify, tls.RootCAs != nil, len(tls.Certificates)
		out = append(out, one)
	}
	return slices.Clip(out)
}

var hostNamespaces = []string{
	"registry.example", "registry.example", "registry.example", "registry.example:5000", "docker.io", "localhost", "localhost:5000", "127.0.0.1:80",
	"127.0.0.1:5000", "[::1]:5000", "unknown.example",
}

// hostFiles generates certs.d directories as people and packages write them, also with mistakes.
type hostFiles struct {
	r  *rand.Rand
	ca string // a CA certificate
}

func (f hostFiles) one(of ...string) string { return oneOf(f.r, of...) }

func (f hostFiles) rarely(times int, usual string, odd ...string) string {
	if f.r.IntN(times) > 0 {
		return usual
	}
	return f.one(odd...)
}

// all returns the files of two directories, a and b, in one of which containerd finds a namespace.
func (f hostFiles) all(namespace string) map[string]string {
	files := map[string]string{"certs/ca.pem": f.ca, "certs/bad.pem": "no certificate"}
	for _, of := range []string{"a", "b"} {
		for _, dir := range []string{namespace, strings.Replace(namespace, ":5000", "_5000_", 1), "_default"} {
			if f.r.IntN(2) == 0 {
				continue
			}
			if f.r.IntN(8) > 0 {
				files[of+"/"+dir+"/hosts.toml"] = f.text()
			}
			if f.r.IntN(6) == 0 {
				files[of+"/"+dir+"/"+f.one("ca.crt", "x.cert", "x.key", "CA.CRT", "ca.pem")] = f.rarely(3, files["certs/ca.pem"], "", "bad")
			}
		}
	}
	return files
}

func (f hostFiles) text() string {
	var b strings.Builder
	if f.r.IntN(3) > 0 {
		b.WriteString("server = " + f.quoted(f.rarely(3, f.url(), "", "registry.example", "https://", "http://registry.example")) + "\n")
	}
	if f.r.IntN(5) == 0 {
		b.WriteString(f.setting() + "\n")
	}
	if f.r.IntN(20) == 0 {
		b.WriteString("host." + f.quoted(f.url()) + "." + f.setting() + "\n")
	}
	written := map[string]bool{}
	for range f.r.IntN(4) {
		url := f.url()
		if written[url] && f.r.IntN(10) > 0 {
			continue
		}
		written[url] = true
		b.WriteString(f.host(f.quotedKey(url)))
	}
	b.WriteString(f.rarely(12, "", "[host]\n", "[hosts]\n", "[\n", "x = 1\n", "[other.'https://o.example']\n", "\x00"))
	text := b.String()
	switch f.r.IntN(40) {
	case 0:
		text = strings.ReplaceAll(text, "\n", "\r\n")
	case 1:
		text = "\ufeff" + text
	case 2:
		text = "\n"
	}
	return text
}

func (f hostFiles) host(key string) string {
	setting := f.setting()
	table := "[host." + key + "]\n"
	switch f.r.IntN(24) {
	case 0:
		return "[host]\n" + key + " = {" + setting + "}\n"
	case 1:
		return "[host]\n" + key + "." + setting + "\n"
	case 3:
		return "[host]\n  [host." + key + "]\n    " + setting + "\n"
	case 4:
		return "[ host . " + key + " ]\n" + setting + "\n"
	case 5:
		return "[[host." + key + "]]\n" + setting + "\n"
	case 6, 7:
		return table + "[host." + key + ".header]\n" + f.one("X-A = 'b'", "x-a = ['b', 'c']", "Authorization = 'Basic eDp5'", "\"X B\" = 'c'", "X-A = 3", "user-agent = 'x'") + "\n"
	case 8:
		return "[host." + key + ".header]\nX-A = 'b'\n"
	case 9:
		return table
	case 10:
		return table + setting + "\n" + f.setting() + "\n"
	default:
		return table + setting + "\n"
	}
}

func (f hostFiles) setting() string {
	return f.one("capabilities = ['pull', 'resolve']", "capabilities = ['pull', 'resolve']", "capabilities = ['pull']", "capabilities = ['resolve']", "capabilities = []", "capabilities = ['PULL', 'Resolve', 'push']", "capabilities = ['referrers']",
		"capabilities = ['pull', 'delete']", "capabilities = 'pull'", "skip_verify = true", "skip_verify = false", "skip_verify = 'true'", "override_path = true", "override_path = false", "ca = '../../certs/ca.pem'", "ca = ['../../certs/ca.pem']",
		"ca = '../../certs/bad.pem'", "ca = '/gone.pem'", "ca = 3", "ca = []", "ca = ''", "client = '../../certs/ca.pem'", "client = [['a', 'b']]", "client = [['a']]", "dial_timeout = '1s'", "dial_timeout = 'soon'",
		"dial_timeout = 3", "Capabilities = ['pull']", "SKIP_VERIFY = true", "unknown = 1", "capability = ['pull']", "header = { X-C = 'd' }", "header = []", "server = 'https://s.example'")
}

func (f hostFiles) url() string {
	return f.one("https://registry.example", "https://mirror.example", "https://m2.example", "http://m3.example", "http://m4.example:5000", "https://m5.example/v2", "https://m6.example/v2/proj", "https://m7.example/proj", "https://m8.example/proj/v2/",
		"m9.example", "m10.example:5000", "https://m11.example:443/", "HTTPS://M12.example", "http://localhost:5000", "http://127.0.0.1", "https://[::1]:5000", "https://user:pw@m13.example", "https://m14.example//v2//x/../y", "ftp://m15.example", "httpx", "https://m16.example?ns=x",
		"https://m17.example/%2f", "://bad", "https://m 18.example")
}

func (f hostFiles) quoted(text string) string { return f.one("'"+text+"'", `"`+text+`"`) }

func (f hostFiles) quotedKey(text string) string {
	if !strings.ContainsAny(text, ":/. ?[]%@") && f.r.IntN(2) == 0 {
		return text
	}
	return f.quoted(text)
}
