// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	slashed "path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// matching takes texts that match as a whole, of so many bytes at most.
func matching(most int, expression, want string) func(text string) error {
	re := regexp.MustCompile(`^(?:` + expression + `)$`)
	return func(text string) error {
		if len(text) > most || !re.MatchString(text) {
			return errors.New(want)
		}
		return nil
	}
}

var (
	// host is that of a registry as in references, with its port.
	host = matching(255, `([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?`,
		"want a host, with its port where it has one: registry.example.com:5000")
	// identifier is containerd's grammar for namespaces and plugin names
	// (github.com/containerd/containerd/v2/pkg/identifiers).
	identifier = matching(76, `[A-Za-z0-9]+([._-][A-Za-z0-9]+)*`,
		"want a name of A-Z a-z 0-9, with single . _ - between")
	// nodeName is Kubernetes' grammar for names of objects (RFC 1123 subdomain).
	nodeName = matching(253, `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`,
		"want the node's name in Kubernetes: lower case letters, digits, dots and dashes")
	fileNameText = matching(maxPattern, `[^/\p{Cc}]+`,
		"want the name of a file in podManifests, without directory or control characters")
	// digest is the one form of digest that registries give to images.
	digest = matching(71, `sha256:[0-9a-f]{64}`, "want a digest as sha256: and 64 of 0-9 a-f, or a pattern of tags")
	// lockGroup is the grammar of the FleetLock protocol.
	lockGroup = matching(128, `[A-Za-z0-9.-]+`, "want a name of A-Z a-z 0-9 . -")
	// tagPatternText has the characters of tags, and those that mean something to path.Match. Others would make a pattern
	// that silently matches nothing, or, as the shell's [!a], something else than was meant.
	tagPatternText = matching(maxPattern, `[A-Za-z0-9_.*?\[\]^\\-]+`, wantTags)
)

const (
	maxPattern = 256 // bytes: a tag has at most 128
	maxReason  = 200 // bytes: it stands in one line of the status
	wantTags   = "want a tag, or a pattern of tags with * ? [a-z] [^a-z]"
	anywhere   = "*" // the pattern of all repositories
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

// lockServer takes the URL of a lock server, before the paths of the protocol.
func lockServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("want the URL of a lock server: https://lock.example.com, with a path where it has one")
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

// filePattern takes the name of a pod manifest, or a pattern of such names. The shell's [!a] is refused: path.Match
// reads it as one of ! and a.
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

// wellFormed refuses what path.Match cannot read.
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
		err = errors.New("want repository:tag: the tag is missing")
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

// prefix takes the beginning of repositories up to a slash: registry, or registry and path. It is checked as what it
// is for: with a name behind it.
func prefix(text string) error {
	if repository(text+"/name") != nil {
		return errors.New("want the beginning of repositories, such as sles12 or registry.suse.com/caasp/v4")
	}
	return nil
}

// match takes what an entry of repositories is for.
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

// tag takes foreign tags, too: an admin may know better.
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

// CheckReason tells what is wrong with the reason of a hold.
func CheckReason(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("empty, want the reason")
	case len(text) > maxReason:
		return fmt.Errorf("%d bytes, want at most %d", len(text), maxReason)
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control character, want a text of one line")
	}
	return nil
}

var (
	errListen = errors.New("want a loopback address with a port, such as 127.0.0.1:9547 or [::1]:9547")
	// The metrics name images and hosts, and their readers need no login.
	errNoLoopback = errors.New("not a loopback address, and the numbers are served without authentication; " +
		"want one such as 127.0.0.1:9547 or [::1]:9547")
	errPods = errors.New("want kubelet's list of pods, such as http://127.0.0.1:10255/pods, or off")
)

// loopback takes an address that only processes of this node can reach. A name is refused, even localhost: whoever
// resolves it decides what it means.
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

// podList takes the URL of kubelet's list of pods; off, which becomes empty: it is not asked. What the list says
// decides whether an update is rolled back, so its host is an address, which no name server can move. It need not be a
// loopback address: kubelet may listen on one other address of the node only (its address).
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
