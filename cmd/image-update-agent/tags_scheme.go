// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/tags"
)

// schemeFlags are the settings of `repositories.tags`, as flags.
type schemeFlags struct {
	pattern, versions string
	prereleases       bool
}

func (f *schemeFlags) addTo(cmd *cobra.Command) {
	names := tags.VersionsNames()
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.pattern, "pattern", "",
		"regular expression with a group (?P<version>...), like tags.pattern of a repository")
	flags.StringVar(&f.versions, "versions", "", "kind of the versions: "+strings.Join(names, ", "))
	flags.BoolVar(&f.prereleases, "prereleases", false, "also offer pre-releases to a release")
	cli.Values(cmd, "versions", names...)
}

func (f *schemeFlags) scheme() (tags.Scheme, error) {
	s, err := tags.NewScheme(f.pattern, tags.Versions(f.versions), f.prereleases)
	if err != nil {
		return tags.Scheme{}, cli.Usage(err)
	}
	return s, nil
}
