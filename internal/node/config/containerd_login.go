// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

var errNoAuth = errors.New("auth is not the base64 of user:password")

// ContainerdLogin returns the login for a host, with its port, from containerd's configuration (registry.configs and
// registry.auths), which containerd uses if kubelet has none. k3s and RKE2 write it there from registries.yaml. Without
// a user, secret is an identity token; both are empty if there is no login. Each call reads the configuration, because
// its files may change. version returns the running version of containerd; it is called if 1.x reads another login.
func ContainerdLogin(p platform.Platform, host string, version func() string) (user, secret string, err error) {
	c := readContainerd(p)
	if c.err != nil {
		return "", "", outside.Error(c.err)
	}
	login := loginOf(tableOf(c.merged()[imagesPlugin]), host, anyCase)
	if cri, runs := c.replaced(); runs {
		if login1 := loginOf(cri, host, lowerOrUpper); login1 != login && isVersion1(version()) {
			login = login1
		}
	}
	if user, secret, err = login.parsed(); err != nil {
		return "", "", fmt.Errorf("%s: %s: %w", p.ContainerdConfig, outside.Text(host), err)
	}
	return user, secret, nil
}

// containerdLogin is the CRI plugin's AuthConfig.
type containerdLogin struct{ username, password, auth, identityToken string }

// loginOf returns the login for a host from the table of a plugin; zero if there is none. As in containerd, auths
// replaces configs. Of several endpoints with the same host, containerd uses a random one; here the last one counts.
func loginOf(plugin map[string]any, host string, valueOf settingOf) containerdLogin {
	registry := tableOf(valueOf(plugin, "registry"))
	config := tableOf(tableOf(valueOf(registry, "configs"))[host])
	auth := tableOf(valueOf(config, "auth"))
	auths := tableOf(valueOf(registry, "auths"))
	for _, endpoint := range slices.Sorted(maps.Keys(auths)) {
		if isOfHost(endpoint, host) {
			auth = tableOf(auths[endpoint])
		}
	}
	text := func(key string) string {
		value, _ := valueOf(auth, key).(string)
		return value
	}
	return containerdLogin{text("username"), text("password"), text("auth"), text("identitytoken")}
}

// isOfHost reports whether an endpoint in auths, a URL or a host, is of a host.
func isOfHost(endpoint, host string) bool {
	u, err := url.Parse(endpoint)
	if err == nil && u.Scheme != "" {
		return u.Host == host
	}
	return err == nil && endpoint == host // with an invalid endpoint, containerd's CRI plugin does not start
}

// parsed does the same as ParseAuth of containerd v2.4.2 (internal/cri/server/images/image_pull.go).
func (l containerdLogin) parsed() (user, secret string, err error) {
	switch {
	case l.username != "":
		return l.username, l.password, nil
	case l.identityToken != "":
		return "", l.identityToken, nil
	case l.auth == "":
		return "", "", nil
	}
	decoded, err := base64.StdEncoding.DecodeString(l.auth)
	user, secret, isPair := strings.Cut(string(decoded), ":")
	if err != nil || !isPair {
		return "", "", errNoAuth
	}
	return user, strings.Trim(secret, "\x00"), nil
}
