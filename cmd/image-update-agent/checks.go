// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (s settings) checkDirectory(check, path, verdict, remedy string) finding {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.IsDir():
		err = fmt.Errorf("%s: not a directory", path)
	case info.Mode().Perm()&0o022 != 0:
		return fail(check, fmt.Errorf("%s: others may write in it (%s)", path, info.Mode().Perm()), "chmod go-w "+path)
	default:
		return ok(check, path)
	}
	return finding{Check: check, Verdict: verdict, Detail: err.Error(), Remedy: remedy}
}

// packagedTemplates is the default of templates.
const packagedTemplates = "usr/share/caasp-container-manifests/manifests"

// checkTemplates misses the templates, unless the admin names pod manifests that need
// none: nodes of kubeadm have none.
func (s settings) checkTemplates() finding {
	_, err := os.Stat(s.Templates)
	byDefault := s.Templates == filepath.Join(s.root, packagedTemplates)
	if errors.Is(err, fs.ErrNotExist) && byDefault && len(s.Manage) > 0 {
		return ok("templates", "none; the pod manifests under manage are changed without one")
	}
	remedy := "correct templates"
	if byDefault {
		remedy = "install the package with the pod manifest templates, " +
			"or name under manage the pod manifests that may be changed"
	}
	return s.checkDirectory("templates", s.Templates, verdictWarn, remedy)
}

// checkStray names files that kubelet runs as pods although nobody means it:
// it reads every file without a leading dot, whatever its ending.
func (s settings) checkStray() []finding {
	entries, err := os.ReadDir(s.PodManifests)
	if err != nil {
		return nil // the directory's own check has said so
	}
	var out []finding
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		if strings.HasPrefix(name, ".") || e.IsDir() || slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			continue
		}
		out = append(out, warn("pod manifests", fmt.Sprintf("kubelet runs %s as a pod, too",
			filepath.Join(s.PodManifests, name)), "move backups out of the directory, or give them a leading dot"))
	}
	return out
}

func (s settings) checkGrains(ctx context.Context, log *slog.Logger) finding {
	if !s.Grains.Enabled {
		return ok("grains", "turned off")
	}
	busy, err := announcer(s, log).Busy(ctx)
	switch {
	case err != nil:
		return fail("grains", err, "repair the file by hand: Salt drops every grain of a file that it cannot read")
	case busy != "":
		return warn("grains", "the grain "+busy+" is true",
			"wait for that operation; nothing is written or applied meanwhile")
	default:
		return ok("grains", s.Grains.Path)
	}
}

func (s settings) checkDaemon(ctx context.Context) finding {
	status, err := api.NewClient(s.socket("status.sock")).Status(ctx)
	switch {
	case errors.Is(err, api.ErrNoDaemon):
		return warn("daemon", "it does not run",
			"systemctl enable --now image-update-agent; where there is no systemd, image-update-agent run")
	case err != nil:
		return fail("daemon", err, "journalctl -u image-update-agent")
	default:
		return daemonFinding(status)
	}
}

// daemonFinding judges the state: a daemon that answers may well have bad news.
func daemonFinding(status agent.Status) finding {
	const check = "daemon"
	switch status.State {
	case agent.StateFailed:
		return warn(check, agent.Sentence(status), "image-update-agent status, then journalctl -u image-update-agent")
	case agent.StateStale:
		return warn(check, agent.Sentence(status), "the lines of the registries below say what is wrong on the way there")
	case agent.StateUnchecked:
		if status.NextCheck == nil && status.Reason != statuspage.Starting {
			return warn(check, agent.Sentence(status)+"; polling is off", "image-update-agent check")
		}
		return ok(check, agent.Sentence(status))
	default:
		return ok(check, agent.Sentence(status))
	}
}

func (s settings) checkSELinux() finding {
	data, err := os.ReadFile(filepath.Join(s.root, "sys/fs/selinux/enforce"))
	switch {
	case err != nil:
		return ok("selinux", "not in use")
	case strings.TrimSpace(string(data)) == "1":
		return ok("selinux", "enforcing: replaced files keep their label")
	default:
		return ok("selinux", "permissive")
	}
}

// checkPods asks for every followed tag, and names what stands in the way.
func checkPods(ctx context.Context, w *wiring) []finding {
	plan, err := w.agent.Plan(ctx, agent.PollDue)
	if err != nil {
		return []finding{fail("node", err, "see the message")}
	}
	var out []finding
	for _, p := range plan.Pods {
		out = append(out, podFindings(p)...)
	}
	return out
}

func podFindings(p agent.PodPlan) []finding {
	var out []finding
	if p.Err != nil {
		out = append(out, fail(p.File, p.Err, "correct the file; nothing of this pod is changed meanwhile"))
	}
	for _, i := range p.Images {
		if i.Offer.Err != nil {
			out = append(out, fail(p.File, i.Offer.Err, remedyOf(i.Offer.Err)))
		}
	}
	for _, h := range slices.Concat(p.Holds, p.Waits) {
		if h.Name != agent.HoldUnmanaged && h.Name != agent.HoldWithheld {
			out = append(out, warn(p.File, h.Name+": "+h.Reason, statuspage.Remedy(h)))
		}
	}
	if len(out) == 0 {
		out = append(out, ok(p.File, cmp.Or(p.Change, "nothing to change")))
	}
	return out
}

func remedyOf(err error) string {
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return "see whether the node's clock is right (timedatectl); if it is, the registry needs a new certificate"
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "add the authority to the system's (update-ca-certificates), or name it as ca in the hosts.toml of the host"
	}
	if errors.Is(err, agent.ErrNotFound) {
		return "the registry has no such tag: copy it into the mirror, or correct the template or `values`"
	}
	if se, ok := errors.AsType[*agent.SourceError](err); ok {
		switch se.Status {
		case 0:
			return "the registry cannot be reached: check DNS, proxy, firewall and the hosts.toml of " + se.Host
		case 401, 403:
			return "the registry wants credentials"
		default:
			return fmt.Sprintf("the registry answers %d: see its log", se.Status)
		}
	}
	return "see the message"
}
