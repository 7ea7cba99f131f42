// SPDX-License-Identifier: Apache-2.0

package story

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The names of docs/air-gap.md.
const (
	DocHost   = "registry.suse.com"
	DocMirror = "registry.mymirror.local"
	DocStick  = "/media/stick/images"
)

// Page is docs/air-gap.md, or a section of it.
type Page string

// AirGap is a section of docs/air-gap.md, by its heading.
func AirGap(t *testing.T, section string) Page {
	t.Helper()
	text, err := os.ReadFile("../../docs/air-gap.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+section+"\n")
	require.True(t, found, "%s: no such section", section)
	rest, _, _ = strings.Cut(rest, "\n"+section[:strings.Index(section, " ")+1])
	return Page(rest)
}

// Block is the n-th code block of a kind.
func (p Page) Block(t *testing.T, kind string, n int) string {
	t.Helper()
	parts := strings.Split(string(p), "\n```"+kind+"\n")
	require.Greater(t, len(parts), n+1, "%s: no block %d", kind, n)
	block, _, found := strings.Cut(parts[n+1], "\n```")
	require.True(t, found)
	return block
}

// GuideMirror is a mirror as SUSE's guide builds it: distribution 2.6 behind
// nginx, below whose own name stands the whole name of each repository.
func GuideMirror(t *testing.T, n *node.Node) *node.Registry {
	t.Helper()
	return n.StartRegistryWith(node.RegistryOptions{
		Program: node.Distribution26, VirtualHost: AirGap(t, NginxSection).Block(t, "nginx", 0),
	})
}

// NginxSection is the heading of the section about such a mirror.
const NginxSection = "## A mirror behind nginx"
