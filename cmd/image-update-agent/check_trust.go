// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// bundles are where Go finds the system's certificate authorities, the first that
// is there (crypto/x509/root_linux.go).
var bundles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem",
	"etc/pki/tls/cacert.pem", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/cert.pem",
}

// settling is how long after a program's start its authorities may still be
// written: at boot both happen at once, and Go reads them at the first use.
const settling = time.Minute

// bundle finds the system's authorities below a root.
func bundle(root string) (path string, changed time.Time, ok bool) {
	for _, name := range bundles {
		path := filepath.Join(root, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type() != fs.ModeDir {
			return path, info.ModTime(), true
		}
	}
	return "", time.Time{}, false
}

// checkTrust finds programs that still go by authorities of before: a Go program
// reads them once. The agent reads them again, but for hosts with a ca of their
// own, to which the parser of hosts.toml adds those that Go has read. The daemon
// is nil where it does not run.
func checkTrust(path string, changed time.Time, containerd peer, daemon *peer, dirs []hosts.Dir) []finding {
	const check = "certificates"
	var out []finding
	since := fmt.Sprintf("%s changed at %s, after the start of ", path, changed.UTC().Format(time.RFC3339))
	if changed.After(containerd.started.Add(settling)) {
		out = append(out, warn(check,
			since+"containerd: kubelet's pulls go by what it was before",
			"systemctl restart containerd: containers go on running"))
	}
	if daemon != nil && changed.After(daemon.started.Add(settling)) {
		for _, d := range dirs {
			if d.Authorities {
				out = append(out, warn(check,
					since+"the daemon: hosts of "+d.Path+" have a ca of their own, and beside it go by what the file was before",
					"systemctl restart image-update-agent"))
				break
			}
		}
	}
	if len(out) == 0 {
		out = append(out, ok(check, path))
	}
	return out
}
