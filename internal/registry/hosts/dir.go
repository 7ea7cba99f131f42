// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Dir is containerd's view of one directory of certs.d.
type Dir struct {
	Path string // of the directory
	// Server is the server in hosts.toml; empty if there is none.
	Server string
	// HostTable: hosts.toml has a table of hosts, even if empty. containerd 1.6 rejects a file without one.
	HostTable bool
	// Unasked is a host that hosts.toml names without its own table. containerd 1.x asks it, 2.x does not.
	Unasked string
	// Only2 is a setting that containerd 1.x does not know or interprets differently.
	Only2 string
	// Rewritten is a host with other names for images (rewrite): only the containerd of k3s and RKE2 uses those.
	Rewritten string
	// Authorities: a host has its own ca.
	Authorities bool
	// Unparsed is the syntax error of hosts.toml. containerd logs it, and asks the namespace itself as if there were no
	// file.
	Unparsed error
	// Err is the error of the files that it names. containerd then pulls nothing.
	Err error
}

// Dirs reads all host directories below those of certs.d, with containerd's parser. It omits directories without a
// hosts.toml.
func Dirs(ctx context.Context, certsDirs []string) []Dir {
	var found []Dir
	for _, dir := range certsDirs {
		files, err := filepath.Glob(filepath.Join(dir, "*", "hosts.toml"))
		if err != nil {
			continue // the pattern is valid, unless the directory has [ in its name
		}
		for _, file := range files {
			found = append(found, readDir(ctx, filepath.Dir(file)))
		}
	}
	return found
}

// noServer is the namespace for a file, and so its server if it names none.
const noServer = "namespace.invalid"

// rewritten returns a host of a file whose table has a rewrite, which only the containerd of k3s and RKE2 supports.
func rewritten(read map[string]any) string {
	all, _ := read["host"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		host, _ := all[name].(map[string]any)
		if rules, _ := host["rewrite"].(map[string]any); len(rules) > 0 {
			return outside.Text(name)
		}
	}
	return ""
}

func readDir(ctx context.Context, dir string) Dir {
	found := Dir{Path: dir, Err: outside.Error(checkDir(dir))}
	if found.Err != nil {
		return found
	}
	hosts, unparsed, err := configured(ctx, dir, noServer)
	found.Err, found.Unparsed = refused(err), refused(unparsed)
	file := filepath.Join(dir, "hosts.toml")
	read := tables(file)
	found.Unasked, found.Only2 = unasked(file, read), only2(read, 0)
	if err != nil || unparsed != nil {
		return found
	}
	if server := hosts[len(hosts)-1].Host; server != noServer {
		found.Server = server
	}
	_, found.HostTable = read["host"]
	found.Rewritten = rewritten(read)
	for _, host := range hosts {
		if tr, ok := host.Client.Transport.(*http.Transport); ok && tr.TLSClientConfig.RootCAs != nil {
			found.Authorities = true
		}
	}
	return found
}

// configured returns the hosts of a namespace as containerd's parser reads them from a directory; an empty one has
// none. unparsed is the error that the parser only logs: then it asks the namespace itself.
func configured(ctx context.Context, dir, namespace string) (hosts []docker.RegistryHost, unparsed, err error) {
	logged := new(errorLog)
	// The context of the configuration has the logger.
	hosts, err = config.ConfigureHosts(log.WithLogger(ctx, logged.logger()), config.HostOptions{
		HostDir: func(string) (string, error) {
			if dir == "" {
				return "", errdefs.ErrNotFound
			}
			return dir, nil
		},
	})(namespace)
	return hosts, logged.err, err
}

// Otherwise returns why a containerd of that version interprets a hosts.toml differently from the agent, which uses
// containerd 2's parser; empty if it does not.
func (d Dir) Otherwise(version string) string {
	version = strings.TrimPrefix(version, "v")
	switch {
	case !strings.HasPrefix(version, "1."):
		return ""
	case d.Unasked != "":
		return fmt.Sprintf("also asks %s, which containerd 2 ignores because it has no [host] table", d.Unasked)
	case d.Only2 != "":
		return fmt.Sprintf("does not know %s", d.Only2)
	case strings.HasPrefix(version, "1.6.") && !d.HostTable:
		return "ignores a file without a [host] table"
	default:
		return ""
	}
}

// EndsSilence reports whether a containerd of that version ends its wait for the header of an answer: 2.3 and later
// after 30 s (DefaultHTTPTransport). Older ones wait without end. False if the version is not known.
func EndsSilence(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor)
	return n == 2 && (major > 2 || major == 2 && minor >= 3)
}

// unasked returns the first host that a file names without its own table.
func unasked(file string, read map[string]any) string {
	table, _ := read["host"].(map[string]any)
	data, err := os.ReadFile(file)
	if err != nil || len(table) == 0 {
		return ""
	}
	named := map[string]bool{}
	p := unstable.Parser{} // as in containerd
	for p.Reset(data); p.NextExpression(); {
		e := p.Expression()
		if e.Kind != unstable.Table {
			continue
		}
		var parts []string
		for key := e.Key(); key.Next(); {
			parts = append(parts, string(key.Node().Data))
		}
		if len(parts) > 1 && parts[0] == "host" {
			named[parts[1]] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !named[name] {
			return outside.Text(name)
		}
	}
	return ""
}

var hostSettings = []string{
	"capabilities", "ca", "client", "dial_timeout", "header", "host", "override_path", "server", "skip_verify",
}

// only2 returns the first setting of a file and its hosts that containerd 1.x does not know, so that it ignores the
// whole file, or that makes 2.x ignore it.
func only2(table map[string]any, depth int) string {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value, known := table[key], strings.ToLower(key)
		if key != known && slices.Contains(hostSettings, known) {
			return outside.Text(key) + ", which 2.x accepts in any case"
		}
		switch known {
		case "capabilities":
			if list, _ := value.([]any); slices.ContainsFunc(list, isReferrers) {
				return "the capability referrers"
			}
		case "dial_timeout":
			text, is := value.(string)
			if _, err := time.ParseDuration(text); !is || text != "" && err != nil {
				return "dial_timeout: its value makes 2.x ignore the whole file"
			}
		case "host":
			hosts, _ := value.(map[string]any)
			if why := only2OfHosts(hosts, depth); why != "" {
				return why
			}
		}
	}
	return ""
}

func isReferrers(capability any) bool {
	text, is := capability.(string)
	return is && strings.EqualFold(text, "referrers")
}

// only2OfHosts is only2 for the tables of hosts.
func only2OfHosts(hosts map[string]any, depth int) string {
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if strings.Contains(name, "]") {
			return "a host with brackets in its name, and ignores the whole file"
		}
		of, _ := hosts[name].(map[string]any)
		if why := only2(of, depth+1); depth == 0 && why != "" {
			return why
		}
	}
	return ""
}

// errorLog keeps the first error that containerd's parser logs, because it returns none.
type errorLog struct{ err error }

// Format implements logrus' Formatter; it writes nothing.
func (l *errorLog) Format(e *log.Entry) ([]byte, error) {
	if err, ok := e.Data["error"].(error); ok && l.err == nil {
		l.err = err
	}
	return nil, nil
}

// refusedFormat writes the errors of containerd's parser without the words of hosts.toml.
type refusedFormat struct {
	of interface {
		Format(*log.Entry) ([]byte, error)
	}
}

// Format implements logrus' Formatter.
func (f refusedFormat) Format(e *log.Entry) ([]byte, error) {
	e.Message = outside.Text(e.Message)
	for key, value := range e.Data {
		if err, is := value.(error); is {
			e.Data[key] = refused(err)
		} else {
			e.Data[key] = outside.Text(fmt.Sprint(value))
		}
	}
	return f.of.Format(e)
}

// quiet makes the context's logger, containerd's own unless another was set, omit the words of hosts.toml.
func quiet(ctx context.Context) context.Context {
	of := log.G(ctx).Logger
	logger := another(of)
	logger.SetFormatter(refusedFormat{of.Formatter})
	logger.SetOutput(of.Out)
	logger.SetLevel(of.GetLevel())
	return log.WithLogger(ctx, logger.WithFields(nil))
}

func (l *errorLog) logger() *log.Entry {
	logger := another(log.L.Logger)
	logger.SetFormatter(l)
	logger.SetOutput(io.Discard)
	logger.SetLevel(log.ErrorLevel)
	return logger.WithFields(nil)
}

// another returns a zero value of a type whose package only containerd imports.
func another[T any](*T) *T { return new(T) }

// Host is containerd's view of one host of a namespace.
type Host struct {
	URL  string // its scheme and its name with its port: https://registry.suse.com
	made docker.RegistryHost
}

// FindDir returns the registry directory that containerd uses for a namespace; empty if there is none.
func FindDir(certsDirs []string, namespace string) (string, error) {
	dir, err := firstDir(certsDirs)(namespace)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return dir, err
}

// Order returns the hosts of a namespace in containerd's order, as its parser reads them from a directory of certs.d;
// an empty directory has none. It returns an error if containerd would use nothing of its hosts.toml.
func Order(ctx context.Context, dir, namespace string) ([]Host, error) {
	if dir != "" {
		if err := checkDir(dir); err != nil {
			return nil, err
		}
	}
	made, unparsed, err := configured(ctx, dir, namespace)
	if err = cmp.Or(err, unparsed); err != nil {
		return nil, refused(err)
	}
	order := make([]Host, len(made))
	for i, m := range made {
		order[i] = Host{URL: m.Scheme + "://" + m.Host, made: m}
	}
	return order, nil
}

// Same reports whether containerd would ask both in the same way. It cannot compare their dial_timeout.
func (h Host) Same(o Host) bool {
	a, b := h.made, o.made
	return a.Scheme == b.Scheme && a.Host == b.Host && a.Path == b.Path && a.Capabilities == b.Capabilities &&
		reflect.DeepEqual(a.Header, b.Header) && sameTransport(a.Client.Transport, b.Client.Transport)
}

// sameTransport compares the TLS of two transports; containerd wraps that of a host that may be asked without TLS.
func sameTransport(a, b http.RoundTripper) bool {
	x, plain := a.(*http.Transport)
	y, alsoPlain := b.(*http.Transport)
	if !plain || !alsoPlain {
		return fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b)
	}
	return SameTLS(x.TLSClientConfig, y.TLSClientConfig)
}

// SameTLS compares what containerd's host configuration can set: the certificates of the client, and how the host's are
// verified.
func SameTLS(a, b *tls.Config) bool {
	if a.InsecureSkipVerify != b.InsecureSkipVerify || (a.RootCAs == nil) != (b.RootCAs == nil) ||
		a.RootCAs != nil && !a.RootCAs.Equal(b.RootCAs) {
		return false
	}
	return slices.EqualFunc(a.Certificates, b.Certificates, func(x, y tls.Certificate) bool {
		return slices.EqualFunc(x.Certificate, y.Certificate, slices.Equal)
	})
}

// Files returns the files that a hosts.toml names, certificates and authorities, as written. They are sorted, so that
// of several the same one is reported each time.
func Files(file string) []string {
	names := filesOf(tables(file))
	slices.Sort(names)
	return names
}
