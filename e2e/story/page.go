// SPDX-License-Identifier: Apache-2.0

package story

import (
	_ "embed"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Names in docs/air-gap.md.
const (
	DocHost   = "registry.suse.com"
	DocMirror = "registry.mymirror.local"
	DocMedia  = "/media/images"
)

// Page is docs/air-gap.md, or a section of it.
type Page string

// AirGap returns the section of docs/air-gap.md with this heading.
func AirGap(t *testing.T, section string) Page {
	t.Helper()
	text, err := os.ReadFile("../../docs/air-gap.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+section+"\n")
	require.True(t, found, "%s: no such section", section)
	rest, _, _ = strings.Cut(rest, "\n"+section[:strings.Index(section, " ")+1])
	return Page(rest)
}

// Block returns the n-th code block of a kind.
func (p Page) Block(t *testing.T, kind string, n int) string {
	t.Helper()
	parts := strings.Split(string(p), "\n```"+kind+"\n")
	require.Greater(t, len(parts), n+1, "%s: no block %d", kind, n)
	block, _, found := strings.Cut(parts[n+1], "\n```")
	require.True(t, found)
	return block
}

// GuideMirror returns a mirror as SUSE's guide builds it: distribution 2.6 behind nginx, with the full name of each
// repository appended to its own name.
func GuideMirror(t *testing.T, n *node.Node) *node.Registry {
	t.Helper()
	return n.StartRegistryWith(node.RegistryOptions{
		Program: node.Distribution26, VirtualHost: GuideNginx,
	})
}

// GuideNginx is the virtual host of that nginx.
//
//go:embed testdata/guide-nginx.conf
var GuideNginx string
