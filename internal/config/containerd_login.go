// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

var errNoAuth = errors.New("auth is not the base64 of user:password")

// ContainerdLogin returns the login for a host, with its port, from containerd's configuration
// (registry.configs.HOST.auth), which containerd uses if kubelet has none. k3s and RKE2 write it there from
// registries.yaml. Without a user, secret is an identity token; both are empty if there is no login. Each call reads
// the configuration, because its files may change.
func ContainerdLogin(p platform.Platform, host string) (user, secret string, err error) {
	c := readContainerd(p)
	if c.err != nil {
		return "", "", outside.Error(c.err)
	}
	configs := tableOf(tableOf(tableOf(c.merged()[imagesPlugin])["registry"])["configs"])
	auth := tableOf(tableOf(configs[host])["auth"])
	text := func(key string) string {
		value, _ := auth[key].(string)
		return value
	}
	// The order of ParseAuth of containerd v2.4.2 (internal/cri/server/images/image_pull.go).
	switch {
	case text("username") != "":
		return text("username"), text("password"), nil
	case text("identitytoken") != "":
		return "", text("identitytoken"), nil
	case text("auth") == "":
		return "", "", nil
	}
	decoded, err := base64.StdEncoding.DecodeString(text("auth"))
	user, secret, isPair := strings.Cut(string(decoded), ":")
	if err != nil || !isPair {
		return "", "", fmt.Errorf("%s: %s: %w", p.ContainerdConfig, outside.Text(host), errNoAuth)
	}
	return user, strings.Trim(secret, "\x00"), nil
}
