// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	slashed "path"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

func image(text string) error {
	ref, err := agent.ParseReference(text)
	switch {
	case err != nil:
		return fmt.Errorf("want repository:tag: %w", errors.Unwrap(err))
	case strings.Contains(text, "@"):
		return errors.New("want repository:tag: a digest cannot be followed")
	case ref.Tag == "":
		return errors.New("want repository:tag: the tag is missing")
	}
	return nil
}

func repository(text string) error {
	ref, err := agent.ParseReference(text)
	switch {
	case err != nil:
		return fmt.Errorf("want a repository: %w", errors.Unwrap(err))
	case ref.Tag != "" || strings.Contains(text, "@"):
		return errors.New("want a repository, without tag or digest")
	}
	return nil
}

// prefix is the beginning of repositories up to a slash: registry, or registry
// and path. It is checked as what it is for: with a name behind it.
func prefix(text string) error {
	if repository(text+"/name") != nil {
		return errors.New("want the beginning of repositories, such as sles12 or registry.suse.com/caasp/v4")
	}
	return nil
}

// anywhere is the pattern of all repositories.
const anywhere = "*"

func pattern(text string) error {
	if text == anywhere {
		return nil
	}
	if below, ok := strings.CutSuffix(text, "/*"); ok && prefix(below) == nil {
		return nil
	}
	if host(text) == nil && !strings.Contains(text, "/") && (strings.Contains(text, ".") || text == "localhost") {
		return fmt.Errorf("a registry without a repository matches nothing, want %s/* for all below it", text)
	}
	if !strings.Contains(text, "*") && repository(text) == nil {
		return nil
	}
	return errors.New("want a repository, prefix/* or *")
}

func tag(text string) error {
	// Classify takes what is not an OCI tag out; a foreign tag is allowed, for an
	// admin may know better.
	if tags.Classify(text) == tags.ClassInvalid {
		return errors.New("want a tag: at most 128 of A-Z a-z 0-9 _ . -, not beginning with . or -")
	}
	return nil
}

func updates(text string) error {
	if _, err := tags.ParseChange(text); err != nil {
		return errors.New("want one of none, rebuild, revision, patch, minor, major")
	}
	return nil
}

func dialect(text string) error {
	_, err := tags.ParseDialect(text)
	if err != nil || text == "" {
		return errors.New("want one of core, hyphen, hyphen-dash, short-b, plus")
	}
	return nil
}

// inPatterns are the characters that tags have, and those that mean something
// to path.Match. Others would make a pattern that silently matches nothing, or,
// as the shell's [!a], something else than was meant.
var inPatterns = regexp.MustCompile(`^[A-Za-z0-9_.*?\[\]^\\-]+$`)

// maxPattern bounds a pattern, in bytes: a tag has at most 128.
const maxPattern = 256

func tagPattern(text string) error {
	const want = "want a tag, or a pattern of tags with * ? [a-z] [^a-z]"
	if len(text) > maxPattern || !inPatterns.MatchString(text) {
		return errors.New(want)
	}
	if _, err := slashed.Match(text, ""); err != nil {
		return fmt.Errorf("%w, %s", err, want)
	}
	return nil
}

// digests is the one form of digest that registries give to images.
var digests = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func denial(text string) error {
	if strings.Contains(text, ":") {
		if !digests.MatchString(text) {
			return errors.New("want a digest as sha256: and 64 of 0-9 a-f, or a pattern of tags")
		}
		return nil
	}
	return tagPattern(text)
}

// maxReason bounds what a person writes about a hold, in bytes: it stands in one
// line of the status.
const maxReason = 200

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

func moment(text string) error {
	_, err := ParseTime(text)
	return err
}

// firstYear is when there were no containers yet: an earlier time was mistaken,
// and the zero time means that there is no end.
const firstYear = 2000

// ParseTime reads a moment as people write it: RFC 3339, or the date alone,
// which is the midnight at its beginning where the node is. One that is too late to
// be written in UTC is the latest that can be.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.ParseInLocation(time.DateOnly, text, time.Local)
	}
	if err != nil || t.Year() < firstYear {
		return time.Time{}, errors.New("want a time such as 2026-12-24T18:00:00+01:00, or a date such as 2026-12-24")
	}
	if writable := outside.Time(t); !writable.Equal(t) {
		return writable, nil
	}
	return t, nil
}

// fits reports what the keys of one record ask of one another, under the name
// of the key that has to change.
type fits func(record map[string]input, report func(name string, err error))

// repositoryFits holds an entry of repositories together: a release is read in
// the dialect of its tags, and without a hold nothing ends.
func repositoryFits(record map[string]input, report func(name string, err error)) {
	_, held := record["hold"]
	if _, ends := record["until"]; ends && !held {
		report("until", errors.New("without hold, want both or none"))
	}
	if most, there := record["max"]; there {
		dialect := record["dialect"].text
		if _, err := parseMax(most.text, dialect); err != nil {
			report("max", err)
		}
	}
}

// parseMax reads the highest release; no dialect is core.
func parseMax(text, name string) (tags.Tag, error) {
	dialect, err := tags.ParseDialect(name)
	if err != nil {
		return tags.Tag{}, err
	}
	tag, err := dialect.Parse(text)
	if err != nil {
		return tags.Tag{}, fmt.Errorf("want a release in the dialect %s, such as 4.1 or 4.1.2", dialect)
	}
	return tag, nil
}
