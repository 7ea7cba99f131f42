// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/systemd"
)

// maxEnviron limits the environment of a process: the kernel's limit for one variable is 128 KiB.
const maxEnviron = 1 << 20

// checkProxy compares the proxy of containerd's unit with the agent's: kubelet's pulls would succeed, and the agent's
// questions would not.
func (n Node) checkProxy(ctx context.Context) []Finding {
	unit := n.Platform.ContainerdUnit()
	theirs, running, err := environOf(ctx, n.Bus, unit)
	if err != nil {
		return []Finding{warn("proxy", "not checked: "+unit+": "+err.Error(), asRoot)}
	}
	if !running {
		return nil // started another way: its environment is not known
	}
	own, running, err := environOf(ctx, n.Bus, systemd.ServiceUnit)
	if err != nil {
		return []Finding{warn("proxy", "not checked: "+systemd.ServiceUnit+": "+err.Error(), asRoot)}
	}
	if !running {
		own = os.Getenv // it is started as this program is
	}
	return proxyFindings(unit, theirs, n.Platform.Root, own)
}

// proxyFindings compares the environment of a unit that starts containerd with the agent's.
func proxyFindings(unit string, theirs func(string) string, root string, own func(string) string) []Finding {
	const check = "proxy"
	name, proxy := proxyIn(theirs)
	isSet, err := hosts.NewProxies(root, own).IsSet()
	switch {
	case err != nil:
		return []Finding{warn(check, err.Error(), "correct /etc/sysconfig/proxy")}
	case isSet || proxy == "":
		return nil
	}
	shown := "not a URL"
	if u, err := url.Parse(proxy); err == nil && u.Host != "" {
		shown = u.Host // without its login
	}
	return []Finding{warn(check, "containerd has a proxy ("+outside.Text(shown)+", "+name+" of "+unit+
		"), and the agent has none: it asks registries directly",
		"set the same proxy in /etc/sysconfig/proxy, or with Environment= and systemctl edit "+systemd.ServiceUnit+
			", then run systemctl restart image-update-agent; ignore this if registries can be reached without it")}
}

// proxyIn returns the variable that names a proxy, and the proxy. k3s and RKE2 pass those that begin with CONTAINERD_
// on to containerd.
func proxyIn(getenv func(string) string) (name, proxy string) {
	for _, begins := range []string{"CONTAINERD_", ""} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
			if proxy := getenv(begins + name); proxy != "" {
				return begins + name, proxy
			}
		}
	}
	return "", ""
}

// environOf returns the environment of the main process of a unit; false if it has none.
func environOf(ctx context.Context, bus, unit string) (getenv func(string) string, running bool, err error) {
	state, err := systemd.ReadState(ctx, bus, unit)
	if err != nil || state.PID == 0 {
		return nil, false, nil // the check of the service names a bus that does not answer
	}
	file, err := nodefile.Open(filepath.Join("/proc", strconv.FormatUint(uint64(state.PID), 10), "environ"))
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	data, err := outside.ReadAll(file, maxEnviron)
	if err != nil {
		return nil, false, err
	}
	values := map[string]string{}
	for pair := range strings.SplitSeq(string(data), "\x00") {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }, true, nil
}
