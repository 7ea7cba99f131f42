// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// maxProxyFile limits a settings file: SUSE's has 3 kB, most of it comments.
const maxProxyFile = 64 << 10

var errNoProxyURL = errors.New("want the URL of a proxy: http://proxy.example.com:3128")

// Proxies choose the proxy for a request as SUSE's login shell does: by the environment, else by /etc/sysconfig/proxy,
// which is read again when it changes. In both, a PROXY_ENABLED other than "yes" disables the rest.
type Proxies struct {
	environment chooseProxy
	file        *nodefile.Cached[chooseProxy]
}

// chooseProxy is the choice of one source; nil: none.
type chooseProxy func(*url.URL) (*url.URL, error)

// NewProxies reads the environment now, and the file below root when needed.
func NewProxies(root string, getenv func(string) string) *Proxies {
	either := func(name string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return getenv(strings.ToLower(name))
	}
	p := &Proxies{file: &nodefile.Cached[chooseProxy]{
		Path: filepath.Join("/", root, "/etc/sysconfig/proxy"), Limit: maxProxyFile, AnyOwner: true, Parse: parseProxyFile,
	}}
	if enabled := getenv("PROXY_ENABLED"); enabled == "" || isYes(enabled) {
		choose, err := proxiesOf(either)
		if err != nil {
			choose = func(*url.URL) (*url.URL, error) { return nil, fmt.Errorf("proxy: environment: %w", err) }
		}
		p.environment = choose
	}
	return p
}

// For is the Proxy function of an http.Transport. It returns an error if the setting cannot be read: without the proxy
// the request might leak, or hang.
func (p *Proxies) For(req *http.Request) (*url.URL, error) {
	choose := p.environment
	if choose == nil {
		var err error
		if choose, _, err = p.file.Get(); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	if choose == nil {
		return nil, nil
	}
	return choose(req.URL)
}

// IsSet reports whether there is a proxy for some requests.
func (p *Proxies) IsSet() (bool, error) {
	if p.environment != nil {
		return true, nil
	}
	choose, _, err := p.file.Get()
	return choose != nil, err
}

// proxiesOf returns the choice by variables. Errors do not contain their values, because a proxy may need a password.
func proxiesOf(value func(string) string) (chooseProxy, error) {
	c := httpproxy.Config{HTTPProxy: value("HTTP_PROXY"), HTTPSProxy: value("HTTPS_PROXY"), NoProxy: value("NO_PROXY")}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil, nil
	}
	// httpproxy ignores one that it cannot parse.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if text := value(name); text != "" && !isProxy(text) {
			return nil, fmt.Errorf("%s: %w", name, errNoProxyURL)
		}
	}
	return c.ProxyFunc(), nil
}

// isProxy reports whether httpproxy and http.Transport accept a text: a URL, or host:port.
func isProxy(text string) bool {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme)
}

func isYes(text string) bool { return strings.EqualFold(strings.TrimSpace(text), "yes") }

// parseProxyFile parses NAME="value" as a shell would, rejecting anything that a shell would run or expand.
func parseProxyFile(data []byte) (chooseProxy, error) {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		name, value, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(name, "#") {
			values[name] = unquote(value)
		}
	}
	if !isYes(values["PROXY_ENABLED"]) {
		return nil, nil
	}
	return proxiesOf(func(name string) string { return values[name] })
}

// unquote returns the first word of a value, without quotes.
func unquote(value string) string {
	value = strings.TrimSpace(value)
	if value != "" && strings.ContainsRune(`"'`, rune(value[0])) {
		inner, _, _ := strings.Cut(value[1:], value[:1])
		return inner
	}
	word, _, _ := strings.Cut(value, " ")
	return word
}
