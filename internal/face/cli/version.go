// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is a build of a program.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// PrintVersion writes the version of a program as text.
func PrintVersion(out io.Writer, program, version string) error {
	v := versionOf(version)
	_, err := fmt.Fprintf(out, "%s %s (%s, %s/%s)\n", program, v.Version, v.Go, v.OS, v.Arch)
	return err
}

// VersionCommand is the verb version; json writes its value.
func VersionCommand(out io.Writer, program, version string, json func(v any) error) *cobra.Command {
	output := ""
	return WithOutput(&cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Example: "  " + program + " version --output json",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output == "json" {
				return json(versionOf(version))
			}
			return PrintVersion(out, program, version)
		},
	}, &output)
}

func versionOf(version string) Version {
	v := Version{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
