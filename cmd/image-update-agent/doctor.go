// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
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
grains file, the limits of the unit, signature keys, containerd and CRI and how they are set up, hosts.toml
files, every followed tag at its registry, and the clock. It changes nothing. Exit
status 1 if a check failed; warnings and advice do not count.`,
		Example: `  image-update-agent doctor
  image-update-agent doctor --output json | jq '.[] | select(.verdict != "ok")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			if a.output == "json" {
				if err := a.printJSON(findings); err != nil {
					return err
				}
			} else {
				writeFindings(a.out, findings)
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
		return []finding{fail("configuration", err,
			"correct the file at the line named; `image-update-agent config check` tries again")}
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
	findings = append(findings, s.checkDirectory("templates", s.Templates, verdictWarn,
		"install the package with the pod manifest templates, or set templates"))
	findings = append(findings, s.checkDirectory("pod manifests", s.PodManifests, verdictFail,
		"set podManifests to kubelet's staticPodPath"))
	findings = append(findings, s.checkStray()...)
	findings = append(findings, s.checkSetup()...)
	findings = append(findings, s.checkDisk(), s.checkGrains(ctx, a.quietLog()), s.checkDaemon(ctx), s.checkSELinux())
	findings = append(findings, s.checkSandbox(ctx)...)
	findings = append(findings, s.checkHooks(ctx, a)...)
	findings = append(findings, s.checkKeys(ctx)...)
	return append(findings, a.checkNode(ctx, s)...)
}

func writeFindings(w io.Writer, findings []finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Verdict, f.Check, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(w, "         -> %s\n", f.Remedy)
		}
	}
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
