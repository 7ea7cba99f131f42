// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a node: configuration, files, units, containerd, registries. It changes nothing. A check is
// here because a remedy follows from what it finds.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/grains"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// Verdicts of a check.
const (
	OK      = "ok"      // it was checked, and works
	Skipped = "skipped" // it was not checked: it is turned off, or not there to be asked
	Advice  = "advice"  // all works, and could work better
	Warn    = "warning" // the agent works, but less well
	Fail    = "failed"  // the agent cannot do its work
)

// asRoot is the remedy for a check whose input only root may read.
const asRoot = "run doctor as root"

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"` // empty where the verdict is OK or Skipped
}

// Node is what is checked.
type Node struct {
	config.Settings

	Files  []string // of the configuration
	CertsD config.CertsD
	// Platform is the node's; its Root is that of the host's files.
	Platform platform.Platform
	// KubeletConfig is that of its kubelet.
	KubeletConfig config.KubeletConfig
	// Unread is why it is not known which directory kubelet reads; nil: it is known. See config.Config.
	Unread  error
	Bus     string // D-Bus address of the system bus
	Version string // of this program

	LockID string // of this node in the lock server's list, or the name of the node
	// LockHolder returns the holder of the lock in the cluster; nil: nobody. See kubelease.Client.
	LockHolder func(context.Context) (*fleet.LockHolder, error)

	SaltCall, HookProgram hook.Program
	Webhooks              []hook.Webhook

	// Plan makes the plan of a cycle. What it sends to registries goes through wrap.
	Plan func(ctx context.Context, wrap func(http.RoundTripper) http.RoundTripper) (plan.Plan, error)
}

// Configuration is what is wrong with the configuration, each mistake a finding.
func Configuration(err error) []Finding {
	var mistakes []Finding
	for _, p := range config.ProblemsOf(err) {
		place := "that line"
		if p.Line == 0 { // a file that is not read, or the environment
			place = "that"
		}
		remedy := "correct " + place + ", then run image-update-agent config check"
		if errors.Is(p, fs.ErrPermission) {
			remedy = asRoot
		}
		mistakes = append(mistakes, fail("configuration", p, remedy))
	}
	return mistakes
}

// Examine runs the checks in the order in which one rests on another.
func Examine(ctx context.Context, n Node) []Finding {
	detail := "no configuration file; every setting has its default"
	if len(n.Files) > 0 {
		detail = strings.Join(n.Files, ", ")
	}
	findings := append([]Finding{ok("configuration", detail)}, n.checkPlatform()...)
	findings = append(findings, n.checkFiles()...)
	findings = append(findings, checkGrains(ctx, n.Grains))
	findings = append(findings, n.checkSystem(ctx)...)
	findings = append(findings, n.checkHooks(ctx)...)
	findings = append(findings, checkKeys(n.Repositories, n.SignatureKeys)...)
	findings = append(findings, checkCatalogKeys(n.Catalog, n.SignatureKeys)...)
	findings = append(findings, n.checkLocalRegistry(ctx)...)
	findings = append(findings, n.checkContainerd(ctx)...)
	outside.Hide(&findings)
	return findings
}

// checkSystem looks at the daemon and at what the system has to do with it.
func (n Node) checkSystem(ctx context.Context) []Finding {
	published, err := api.NewClient(filepath.Join(n.RuntimeDir, "status.sock")).Status(ctx)
	daemon := &published
	if err != nil {
		daemon = nil
	}
	findings := append(n.checkService(ctx, daemon), checkDaemon(published, err))
	findings = append(findings, checkVersion(daemon, n.Version)...)
	findings = append(findings, checkRecord(daemon)...)
	findings = append(findings, n.checkBus(ctx, daemon)...)
	findings = append(findings, checkPort(ctx, n.Metrics.Listen, daemon))
	findings = append(findings, n.checkLock(ctx, daemon)...)
	return append(findings, n.checkKubelet(ctx)...)
}

// checkRecord names a lost record that no person has confirmed. Without the daemon it is not known.
func checkRecord(daemon *status.Status) []Finding {
	if daemon == nil {
		return nil
	}
	for _, r := range daemon.Reasons {
		if r.Kind == status.KindLost {
			return []Finding{warn("record", r.Text,
				"run image-update-agent resume --all, then set the holds again that you need")}
		}
	}
	return nil
}

func checkGrains(ctx context.Context, g config.Grains) Finding {
	if !g.Enabled {
		return skipped("grains", "grains.enabled is false")
	}
	busy, err := grains.New("", g.Path, slog.New(slog.DiscardHandler)).Busy(ctx)
	switch {
	case err != nil:
		return fail("grains", err, grainsRemedy(g.Path, err))
	case busy != "":
		return warn("grains", "the grain "+busy+" is true",
			"wait until that operation ends; until then the agent writes and applies nothing")
	default:
		return ok("grains", g.Path)
	}
}

// grainsRemedy depends on what the file is, since Salt reads more than the agent edits.
func grainsRemedy(path string, err error) string {
	info, errStat := os.Lstat(path)
	switch {
	case errStat == nil && info.Mode().Type() == fs.ModeSymlink:
		return "replace the link by the file, or set grains.path to the file: the agent follows no symlinks"
	case errors.Is(err, yamledit.ErrShape):
		return "write each grain on its own line (key: value): the agent does not edit other YAML such as { }"
	case errors.Is(err, fs.ErrPermission):
		return asRoot
	default:
		return "repair the file by hand: Salt ignores all grains of a file that it cannot read"
	}
}

// Write writes each finding, its remedy below it, and at last how many there are of
// each verdict.
func Write(p *terminal.Page, all []Finding) error {
	count := map[string]int{}
	for _, f := range all {
		count[f.Verdict]++
		colour := map[string]terminal.Colour{Fail: terminal.Red, Warn: terminal.Yellow}[f.Verdict]
		p.Painted(colour, f.Verdict)
		p.Item(strings.Repeat(" ", len("warning  ")-len(f.Verdict)), f.Check+": "+f.Detail)
		if f.Remedy != "" {
			p.Item("         -> ", f.Remedy)
		}
	}
	var sum []string
	for _, verdict := range []string{Fail, Warn, Advice, Skipped, OK} {
		switch n := count[verdict]; {
		case verdict == Warn && n > 0:
			sum = append(sum, terminal.Plural(n, verdict))
		case n > 0:
			sum = append(sum, fmt.Sprintf("%d %s", n, verdict))
		}
	}
	p.Line("\n" + strings.Join(sum, ", "))
	return p.Flush()
}

func ok(check, detail string) Finding {
	return Finding{Check: check, Verdict: OK, Detail: detail}
}

func skipped(check, detail string) Finding {
	return Finding{Check: check, Verdict: Skipped, Detail: detail}
}

func advise(check, detail, remedy string) Finding {
	return Finding{check, Advice, detail, remedy}
}

func warn(check, detail, remedy string) Finding {
	return Finding{check, Warn, detail, remedy}
}

func fail(check string, err error, remedy string) Finding {
	return Finding{check, Fail, err.Error(), remedy}
}

// at is a path of the host.
func (n Node) at(parts ...string) string {
	return filepath.Join("/", n.Platform.Root, filepath.Join(parts...))
}
