// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a node: configuration, files, units, containerd, registries. It changes nothing. A check is
// here because a remedy follows from what it finds.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/grains"
	"github.com/kubic-project/image-update-agent/internal/hook"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// Verdicts of a check.
const (
	OK     = "ok"
	Advice = "advice"  // all works, and could work better
	Warn   = "warning" // the agent works, but less well
	Fail   = "failed"  // the agent cannot do its work
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"` // empty where all is well
}

// Node is what is checked.
type Node struct {
	config.Settings

	Files   []string // of the configuration
	CertsD  config.CertsD
	Root    string // of the host's files
	Bus     string // D-Bus address of the system bus
	Version string // of this program

	SaltCall, HookProgram hook.Program

	// Plan makes the plan of a cycle. What it sends to registries goes through wrap.
	Plan func(ctx context.Context, wrap func(http.RoundTripper) http.RoundTripper) (plan.Plan, error)
}

// Configuration is what is wrong with the configuration, each mistake a finding.
func Configuration(err error) []Finding {
	var mistakes []Finding
	for _, p := range config.ProblemsOf(err) {
		mistakes = append(mistakes, fail("configuration", p,
			"correct the file at the line named; `image-update-agent config check` tries again"))
	}
	return mistakes
}

// Examine runs the checks in the order in which one rests on another.
func Examine(ctx context.Context, n Node) []Finding {
	detail := "no file, every setting has its default"
	if len(n.Files) > 0 {
		detail = strings.Join(n.Files, ", ")
	}
	findings := []Finding{ok("configuration", detail)}
	findings = append(findings, n.checkFiles()...)
	findings = append(findings, checkGrains(ctx, n.Grains))
	findings = append(findings, n.checkSystem(ctx)...)
	findings = append(findings, n.checkHooks(ctx)...)
	findings = append(findings, checkKeys(n.Repositories, n.SignatureKeys)...)
	findings = append(findings, checkCatalogKeys(n.Catalog, n.SignatureKeys)...)
	findings = append(findings, n.checkOwnHost(ctx)...)
	return append(findings, n.checkContainerd(ctx)...)
}

// checkSystem looks at the daemon and at what the system has to do with it.
func (n Node) checkSystem(ctx context.Context) []Finding {
	status, err := api.NewClient(filepath.Join(n.RuntimeDir, "status.sock")).Status(ctx)
	daemon := &status
	if err != nil {
		daemon = nil
	}
	findings := append(n.checkService(ctx, daemon), checkDaemon(status, err))
	findings = append(findings, checkVersion(daemon, n.Version)...)
	findings = append(findings, n.checkBus(ctx, daemon)...)
	findings = append(findings, checkPort(ctx, n.Metrics.Listen, daemon))
	return append(findings, n.checkKubelet(ctx)...)
}

func checkGrains(ctx context.Context, g config.Grains) Finding {
	if !g.Enabled {
		return ok("grains", "turned off")
	}
	busy, err := grains.New("/", g.Path, slog.New(slog.DiscardHandler)).Busy(ctx)
	switch {
	case err != nil:
		return fail("grains", err, "repair the file by hand: Salt drops every grain of a file that it cannot read")
	case busy != "":
		return warn("grains", "the grain "+busy+" is true",
			"wait for that operation; nothing is written or applied meanwhile")
	default:
		return ok("grains", g.Path)
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
	for _, verdict := range []string{Fail, Warn, Advice, OK} {
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

func advise(check, detail, remedy string) Finding {
	return Finding{check, Advice, detail, remedy}
}

func warn(check, detail, remedy string) Finding {
	return Finding{check, Warn, detail, remedy}
}

func fail(check string, err error, remedy string) Finding {
	return Finding{check, Fail, err.Error(), remedy}
}

// prefix is the root in front of absolute paths.
func (n Node) prefix() string { return strings.TrimSuffix(filepath.Clean(n.Root), "/") }

// at is a path of the host.
func (n Node) at(parts ...string) string { return filepath.Join(n.Root, filepath.Join(parts...)) }
