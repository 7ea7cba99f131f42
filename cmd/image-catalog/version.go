// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags "-X main.version=...").
var version = "devel"

func (a *app) versionCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Example: `  image-catalog version --output json`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.flags.output == "json" {
				return a.printJSON(buildVersion())
			}
			return a.printVersion()
		},
	})
}

func (a *app) printVersion() error {
	v := buildVersion()
	_, err := fmt.Fprintf(a.out, "%s %s (%s, %s/%s)\n", program, v.Version, v.Go, v.OS, v.Arch)
	return err
}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
