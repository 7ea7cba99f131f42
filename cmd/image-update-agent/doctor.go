// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// Verdicts of a check.
const (
	verdictOK     = "ok"
	verdictAdvice = "advice"  // all works, and could work better
	verdictWarn   = "warning" // the agent works, but less well
	verdictFail   = "failed"  // the agent cannot do its work
)

// finding is the result of one check.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"` // empty where all is well
}

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the node, and say what to do about each finding",
		Long: `doctor checks all that the agent needs: configuration, directories, disks, the
grains file, the service with its limits and its place on D-Bus, hooks, the metrics port,
kubelet, SELinux and AppArmor, signature keys, containerd and CRI and how they are set
up, hosts.toml files, every followed tag at its registry, and the clock. It changes
nothing. Exit status 1 if a check failed; warnings and advice do not count.`,
		Example: `  image-update-agent doctor
  image-update-agent doctor --output json | jq '.[] | select(.verdict != "ok")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			if err := a.printFindings(findings); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Verdict == verdictFail {
					return exitError{exitFailed}
				}
			}
			return nil
		},
	}
	a.outputFlag(cmd)
	return cmd
}

// examine runs the checks in the order in which one rests on another.
func (a *app) examine(ctx context.Context) []finding {
	c, err := a.load()
	if err != nil {
		var mistakes []finding
		for _, p := range config.ProblemsOf(err) {
			mistakes = append(mistakes, fail("configuration", p,
				"correct the file at the line named; `image-update-agent config check` tries again"))
		}
		return mistakes
	}
	detail := "no file, every setting has its default"
	if len(c.Files) > 0 {
		detail = strings.Join(c.Files, ", ")
	}
	findings := []finding{ok("configuration", detail)}
	s, err := a.settings()
	if err != nil {
		return append(findings, fail("configuration", err, "see --root"))
	}
	findings = append(findings, s.checkTemplates())
	findings = append(findings, s.checkDirectory("pod manifests", s.PodManifests, verdictFail,
		"join the node to a cluster, which makes it; or set podManifests to kubelet's staticPodPath"))
	findings = append(findings, s.checkStray()...)
	findings = append(findings, s.checkSetup()...)
	findings = append(findings, s.checkAside()...)
	findings = append(findings, s.checkWritable()...)
	findings = append(findings, s.checkDisk(), s.checkGrains(ctx, quietLog()))
	findings = append(findings, s.checkSystem(ctx)...)
	findings = append(findings, s.checkSandbox(ctx)...)
	findings = append(findings, s.checkHooks(ctx, a)...)
	findings = append(findings, s.checkKeys(ctx)...)
	return append(findings, a.checkNode(ctx, s)...)
}

// checkSystem looks at the daemon and at what the system has to do with it.
func (s settings) checkSystem(ctx context.Context) []finding {
	daemon := s.running(ctx)
	findings := append(s.checkService(ctx, daemon), s.checkDaemon(ctx))
	findings = append(findings, checkVersion(daemon)...)
	findings = append(findings, s.checkBus(ctx, daemon)...)
	findings = append(findings, s.checkPort(ctx, daemon))
	findings = append(findings, s.checkKubelet(ctx)...)
	return append(findings, s.checkSELinux(), s.checkAppArmor(ctx))
}

func (a *app) printFindings(all []finding) error {
	return a.show(all, func() error { return writeFindings(a.page(), all) })
}

// writeFindings writes each check, its remedy below it, and at last how many there are of
// each verdict.
func writeFindings(p *terminal.Page, all []finding) error {
	count := map[string]int{}
	for _, f := range all {
		count[f.Verdict]++
		colour := map[string]terminal.Colour{verdictFail: terminal.Red, verdictWarn: terminal.Yellow}[f.Verdict]
		p.Painted(colour, f.Verdict)
		p.Item(strings.Repeat(" ", len("warning  ")-len(f.Verdict)), f.Check+": "+f.Detail)
		if f.Remedy != "" {
			p.Item("         -> ", f.Remedy)
		}
	}
	var sum []string
	for _, verdict := range []string{verdictFail, verdictWarn, verdictAdvice, verdictOK} {
		switch n := count[verdict]; {
		case verdict == verdictWarn && n > 0:
			sum = append(sum, terminal.Plural(n, verdict))
		case n > 0:
			sum = append(sum, fmt.Sprintf("%d %s", n, verdict))
		}
	}
	p.Line("\n" + strings.Join(sum, ", "))
	return p.Flush()
}

func ok(check, detail string) finding {
	return finding{Check: check, Verdict: verdictOK, Detail: detail}
}

func advise(check, detail, remedy string) finding {
	return finding{Check: check, Verdict: verdictAdvice, Detail: detail, Remedy: remedy}
}

func warn(check, detail, remedy string) finding {
	return finding{Check: check, Verdict: verdictWarn, Detail: detail, Remedy: remedy}
}

func fail(check string, err error, remedy string) finding {
	return finding{Check: check, Verdict: verdictFail, Detail: err.Error(), Remedy: remedy}
}

func verdictOf(check, detail string, err error, remedy string) finding {
	if err != nil {
		return fail(check, err, remedy)
	}
	return ok(check, detail)
}
