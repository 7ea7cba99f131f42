// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// checkDaemon looks at the answer of the status socket: a daemon that answers may well have bad news.
func checkDaemon(st status.Status, err error) Finding {
	const check = "daemon"
	text := status.Sentence(st)
	switch {
	case errors.Is(err, api.ErrNoDaemon):
		return warn(check, "not running",
			"run systemctl enable --now image-update-agent; without systemd, run image-update-agent run")
	case err != nil:
		return fail(check, err, "journalctl -u image-update-agent")
	case st.State == status.StateFailed:
		return warn(check, text, "see image-update-agent status, then journalctl -u image-update-agent")
	case st.State == status.StateStale:
		return warn(check, text, "see the registries below")
	case st.State == status.StateUnchecked && st.NextCheck == nil && !st.HasReason(status.KindStarting):
		return warn(check, text+"; polling is off", "run image-update-agent check")
	default:
		return ok(check, text)
	}
}

// checkPlan names what stands in the way of a plan's pod manifests.
func checkPlan(plan plan.Plan, err error) []Finding {
	if err != nil {
		return []Finding{fail("node", err, "correct what the message names")}
	}
	var out []Finding
	for _, p := range plan.Pods {
		out = append(out, podFindings(p)...)
	}
	for _, f := range plan.PassedOver {
		out = append(out, warn("pod manifests", fmt.Sprintf("kubelet ignores %s: %v", f.File, f.Why),
			"move files that are not pod manifests out of the directory, or give them a leading dot"))
	}
	return out
}

func podFindings(p plan.PodPlan) []Finding {
	var out []Finding
	if p.Err != nil {
		out = append(out, fail(p.File, p.Err, "correct the file; until then the agent does not change this pod"))
	}
	for _, i := range p.Images {
		if i.Offer.Err != nil {
			out = append(out, fail(p.File, i.Offer.Err, remedyOf(i.Offer.Err)))
		}
	}
	for _, h := range slices.Concat(p.Holds, p.Waits) {
		if !h.IsUnmanaged() && h.Name != status.HoldUnresolved {
			out = append(out, warn(p.File, h.Name+": "+h.Reason, h.Explained().Remedy))
		}
	}
	if len(out) == 0 {
		out = append(out, ok(p.File, cmp.Or(p.Change, "no change")))
	}
	return out
}

func remedyOf(err error) string {
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return "check the clock of the node (timedatectl); if it is right, the registry needs a new certificate"
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "add the certificate authority to the system (update-ca-certificates), or set ca in the hosts.toml of the host"
	}
	if foreign, is := errors.AsType[*transport.ForeignRealmError](err); is {
		return fmt.Sprintf("if %s is the token server of %s, add to the configuration: "+
			"credentials: {tokenServers: {%q: %q}}",
			foreign.Realm, foreign.Registry, foreign.Registry, foreign.Realm)
	}
	if errors.Is(err, release.ErrNotFound) {
		return "copy the image to the mirror, or correct the tag in the template or in `values`"
	}
	if se, ok := errors.AsType[*release.SourceError](err); ok {
		if se.Cause == release.CauseNoRegistry {
			return "check which program answers (curl -i https://" + se.Host + "/v2/): a proxy, a login portal, " +
				"or a host in hosts.toml that is not a registry"
		}
		switch {
		case se.Unasked && se.Host == "":
			return "wait until then, or raise requestsPerHour"
		case se.Unasked && !se.RetryAt.IsZero():
			return "wait until then: " + se.Host + " asks for it"
		}
		switch se.Status {
		case 0:
			return "check DNS, proxy, firewall and the hosts.toml of " + se.Host
		case 401, 403:
			if errors.Is(err, transport.ErrPlainCredentials) {
				return "let " + se.Host + " answer over https, or without a login: over plain http the agent sends none"
			}
			return "put the login for " + se.Host + " into a file that the agent reads: credentials.file, " +
				"/root/.docker/config.json, kubelet's (see `platform`), or containerd's configuration (registry.configs). " +
				"It does not use credential helpers, kubelet's credential providers or imagePullSecrets"
		default:
			return fmt.Sprintf("see the log of the registry: it answers %d", se.Status)
		}
	}
	return "correct what the message names"
}
