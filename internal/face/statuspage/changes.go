// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/contents"
)

// ImageChanges is what an offered image changes inside.
type ImageChanges struct {
	PodManifest string       `json:"podManifest"`
	Container   string       `json:"container"`
	Image       string       `json:"image"` // repository
	Change      string       `json:"change"`
	From        status.Named `json:"from"` // what is running
	To          status.Named `json:"to"`   // what is offered
	// Packages: null if they cannot be compared, see Error, or if the images have none.
	Packages []contents.Change `json:"packages"`
	Same     int               `json:"same"` // packages that both have in one version
	// Labels are what the offered image says of itself. Nothing is decided by them.
	Labels []ImageLabel `json:"labels"`
	Error  string       `json:"error"`
}

// ImageLabel is one of the labels by which an image names its origin.
type ImageLabel struct {
	Name string `json:"name"`
	From string `json:"from"` // of the running image
	To   string `json:"to"`
	Link bool   `json:"link"` // To is an address for a browser: http or https
}

// The labels that are shown: of the OCI's image-spec, and SUSE's.
var shownLabels = []string{
	"org.opencontainers.image.url", "org.opencontainers.image.documentation", "org.opencontainers.image.source",
	"org.opencontainers.image.revision", "org.opencontainers.image.version", "org.opensuse.reference",
}

// LabelsOf returns the labels that are shown.
func LabelsOf(from, to map[string]string) []ImageLabel {
	labels := []ImageLabel{}
	for _, name := range shownLabels {
		if from[name] == "" && to[name] == "" {
			continue
		}
		labels = append(labels, ImageLabel{name, line(from[name]), line(to[name]), isLink(to[name])})
	}
	return labels
}

// isLink reports whether a text is a whole address of a page, which shows everything that it contains.
func isLink(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || line(text) != text {
		return false
	}
	shown := url.URL{
		Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, Fragment: u.Fragment,
	}
	return shown.String() == text // without a user, whose name could be that of another host
}

// Changes writes what offered images change inside.
func Changes(p *terminal.Page, images []ImageChanges) error {
	for n, i := range images {
		if n > 0 {
			p.Line("")
		}
		p.Item(i.PodManifest+" "+i.Container+": ",
			fmt.Sprintf("%s %s -> %s (%s)", i.Image, shown(i.From), name(&i.To), cmp.Or(i.Change, "-")))
		switch {
		case i.Error != "":
			p.Item("  error: ", i.Error)
		case i.Packages == nil:
			p.Item("  ", "The images have no package database that is known, nor Go programs in the usual directories.")
		case len(i.Packages) == 0:
			p.Item("  ", fmt.Sprintf("No package changes; %s in both.", terminal.Plural(i.Same, "package")))
		default:
			i.writePackages(p)
		}
		for _, l := range i.Labels {
			text := l.To
			if l.From != l.To && l.From != "" {
				text = l.From + " -> " + cmp.Or(l.To, "-")
			}
			p.Item("  "+l.Name+": ", text)
		}
	}
	return p.Flush()
}

func (i ImageChanges) writePackages(p *terminal.Page) {
	rows := [][]string{{"  PACKAGE", "RUNS", "OFFERED", "SOURCE"}}
	for _, c := range i.Packages {
		rows = append(rows, []string{"  " + c.Name, cmp.Or(c.From, "-"), cmp.Or(c.To, "-"), c.Source})
	}
	p.Rows(rows)
	p.Item("  ", fmt.Sprintf("%s, %d the same.", terminal.Plural(len(i.Packages), "change"), i.Same))
}

func shown(n status.Named) string {
	if n.Digest == "" && n.Tag == "" {
		return "-"
	}
	return name(&n)
}

// line keeps what looks like a secret in an address, such as the query: everybody who pulls the image has it.
func line(text string) string { return outside.Line(text, outside.MaxText) }
