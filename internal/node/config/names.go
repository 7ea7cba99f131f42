// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	slashed "path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/tags"
)

// matching returns a check for texts that match completely; most limits their bytes.
func matching(most int, expression, want string) func(text string) error {
	re := lazyregexp.New(`^(?:` + expression + `)$`)
	return func(text string) error {
		if len(text) > most || !re().MatchString(text) {
			return errors.New(want)
		}
		return nil
	}
}

// subdomain is Kubernetes' grammar for names of objects (RFC 1123 subdomain).
const subdomain = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`

// objectName is a namespace and the name of an object in it.
const objectName = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/` + subdomain

var (
	// host matches a registry's host as in references, with its port.
	host = matching(255, `([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?`,
		"want a host, with an optional port: registry.example.com:5000")
	// identifier is containerd's grammar for namespaces and plugin names
	// (github.com/containerd/containerd/v2/pkg/identifiers).
	identifier = matching(76, `[A-Za-z0-9]+([._-][A-Za-z0-9]+)*`,
		"want a name of A-Z a-z 0-9, separated by single . _ -")
	// nodeName matches the name of a node.
	nodeName = matching(253, subdomain,
		"want the Kubernetes name of the node: lower-case letters, digits, dots and dashes")
	fileNameText = matching(maxPattern, `[^/\p{Cc}]+`,
		"want the name of a file in podManifests, without directory or control characters")
	// digest matches the only form of digest that registries use for images.
	digest = matching(71, `sha256:[0-9a-f]{64}`, "want a digest (sha256: and 64 of 0-9 a-f) or a pattern of tags")
	// lockGroup is the grammar of the FleetLock protocol.
	lockGroup = matching(128, `[A-Za-z0-9.-]+`, "want a name of A-Z a-z 0-9 . -")
	leaseName = matching(63+1+253, objectName,
		"want the namespace and the name of a Lease: kube-system/image-update-agent")
	// webhookName matches a name that becomes part of a file name.
	webhookName = matching(32, `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, "want a name of a-z 0-9 and -, at most 32")
	// tagPatternText matches the characters of tags, and the special ones of path.Match. Others would make a pattern
	// that silently matches nothing or, like the shell's [!a], something other than intended.
	tagPatternText = matching(maxPattern, `[A-Za-z0-9_.*?\[\]^\\-]+`, wantTags)
)

const (
	maxPattern = 256 // bytes: a tag has at most 128
	maxReason  = 200 // bytes: it is part of one line of the status
	wantTags   = "want a tag, or a pattern of tags with * ? [a-z] [^a-z]"
	anywhere   = "*" // the pattern for all repositories
)

func path(text string) error {
	switch {
	case !filepath.IsAbs(text):
		return errors.New("want an absolute path")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control character in a path")
	}
	return nil
}

// pathBelowRoot accepts a path of a setting. A directory that another program reads may be the root directory.
func pathBelowRoot(text string) error {
	if err := path(text); err != nil || filepath.Clean(text) != "/" {
		return err
	}
	return errors.New("want a path below /, the root directory")
}

// lockServer accepts the URL of a lock server, without the protocol's paths.
func lockServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("want the URL of a lock server, with an optional path: https://lock.example.com")
	}
	return nil
}

func fileName(text string) error {
	if err := fileNameText(text); err != nil {
		return err
	}
	if text[0] == '.' {
		return errors.New("kubelet ignores names with a leading dot")
	}
	return nil
}

// filePattern accepts the name of a pod manifest, or a pattern for such names. It rejects the shell's [!a], because
// path.Match reads it as one of ! and a.
func filePattern(text string) error {
	const want = "want the name of a file in podManifests, or a pattern of names with * ? [a-z] [^a-z]"
	if err := fileName(text); err != nil {
		return err
	}
	if len(text) > maxPattern || strings.Contains(text, "[!") {
		return errors.New(want)
	}
	return wellFormed(text, want)
}

// wellFormed rejects patterns that path.Match cannot parse.
func wellFormed(pattern, want string) error {
	if _, err := slashed.Match(pattern, ""); err != nil {
		return fmt.Errorf("%w, %s", err, want)
	}
	return nil
}

func image(text string) (release.Reference, error) {
	ref, err := release.ParseReference(text)
	switch {
	case err != nil:
		err = fmt.Errorf("want repository:tag: %w", errors.Unwrap(err))
	case strings.Contains(text, "@"):
		err = errors.New("want repository:tag: a digest cannot be followed")
	case ref.Tag == "":
		err = errors.New("no tag: want repository:tag")
	}
	return ref, err
}

func repository(text string) error {
	ref, err := release.ParseReference(text)
	switch {
	case err != nil:
		return fmt.Errorf("want a repository: %w", errors.Unwrap(err))
	case ref.Tag != "" || strings.Contains(text, "@"):
		return errors.New("want a repository, without tag or digest")
	}
	return nil
}

// prefix accepts a prefix of repositories up to a slash: registry, or registry and path. It is checked together with a
// name after it, as it is used.
func prefix(text string) error {
	if repository(text+"/name") != nil {
		return errors.New("want the prefix of repositories, such as sles12 or registry.suse.com/caasp/v4")
	}
	return nil
}

// match accepts the match of a repositories entry.
func match(text string) error {
	below, isPrefix := strings.CutSuffix(text, "/*")
	switch {
	case text == anywhere, isPrefix && prefix(below) == nil:
		return nil
	case host(text) == nil && (strings.Contains(text, ".") || text == "localhost"):
		return fmt.Errorf("a registry without a repository matches nothing, want %s/* for all below it", text)
	case strings.Contains(text, "*"), repository(text) != nil:
		return errors.New("want a repository, prefix/* or *")
	}
	return nil
}

// tag also accepts unrecognized tags, because an admin may want them.
func tag(text string) error {
	if tags.Classify(text) == tags.ClassInvalid {
		return errors.New("want a tag: at most 128 of A-Z a-z 0-9 _ . -, not beginning with . or -")
	}
	return nil
}

func tagPattern(text string) error {
	if err := tagPatternText(text); err != nil {
		return err
	}
	return wellFormed(text, wantTags)
}

func denial(text string) error {
	if strings.Contains(text, ":") {
		return digest(text)
	}
	return tagPattern(text)
}

// CheckReason returns an error if the reason of a hold is invalid.
func CheckReason(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("empty, want a reason")
	case len(text) > maxReason:
		return fmt.Errorf("%d bytes, want at most %d", len(text), maxReason)
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control character, want a text of one line")
	}
	return nil
}

var (
	errListen = errors.New("want a loopback address with a port, such as 127.0.0.1:9547 or [::1]:9547")
	// The metrics name images and hosts, and can be read without a login.
	errNoLoopback = errors.New("not a loopback address, and the metrics have no authentication; " +
		"want one such as 127.0.0.1:9547 or [::1]:9547")
	errPods = errors.New("want kubelet's list of pods, such as http://127.0.0.1:10255/pods, or off")
)

// loopback accepts an address that only processes of this node can reach. It rejects names, even localhost, because
// their meaning depends on the resolver.
func loopback(text string) error {
	at, err := netip.ParseAddrPort(text)
	switch {
	case err != nil, at.Port() == 0, at.Addr().Zone() != "":
		return errListen
	case !at.Addr().Unmap().IsLoopback():
		return errNoLoopback
	}
	return nil
}

// podList accepts the URL of kubelet's list of pods, or off, which becomes empty: no list. The list decides whether an
// update is rolled back, so its host must be an address, which no name server can change. It need not be a loopback
// address, because kubelet may listen only on another address of the node (its address).
func podList(text string) (string, error) {
	if text == "off" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host+"/pods" != text {
		return "", errPods
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return "", errPods
	}
	ip, err := netip.ParseAddr(u.Hostname())
	oneHost := err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
	if !oneHost && u.Hostname() != "localhost" {
		return "", errors.New("want an address of this node, such as 127.0.0.1, or localhost as the host")
	}
	return text, nil
}

// check checks the keys of a webhook together.
func (h Webhook) check() error {
	if (h.URL == "") == (h.URLFile == "") {
		return errors.New("want either url or urlFile")
	}
	return nil
}

// publicURL accepts the URL of a webhook in a file that others may read. Those of chat services contain a secret.
func publicURL(text string) error {
	if err := CheckWebhookURL(text); err != nil {
		return err
	}
	if u, _ := url.Parse(text); u.RawQuery != "" || slices.ContainsFunc(strings.Split(u.Path, "/"), mayBeToken) {
		return errors.New("this URL may contain a secret: write it to a file that only root can read, and set " +
			"urlFile")
	}
	return nil
}

// mayBeToken reports whether a part of a path may be a token: long, with letters and digits.
func mayBeToken(part string) bool {
	const shortest = 16
	return len(part) >= shortest && strings.ContainsFunc(part, unicode.IsDigit) &&
		strings.ContainsFunc(part, unicode.IsLetter)
}

// CheckWebhookURL returns an error for an invalid URL of a webhook. The error does not quote it, because it may be
// secret. Without TLS the URL must be on this node.
func CheckWebhookURL(text string) error {
	const maxURL = 2048
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Hostname() == "" || u.User != nil || u.Fragment != "" ||
		strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("want the URL of a webhook: https://hooks.example.com/path")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && err == nil && ip.IsLoopback() {
		return nil
	}
	if u.Scheme != "https" {
		return errors.New("want https, or http to an address of this node such as 127.0.0.1")
	}
	return nil
}
