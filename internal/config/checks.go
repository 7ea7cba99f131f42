// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// check tells what is wrong with a scalar and what is allowed.
type check func(text string) error

const (
	zeroIsOff     = true
	zeroIsRefused = false
)

// shortest is the shortest time there is: below it, a unit was mistaken.
const shortest = time.Second

// maxRequests bounds requestsPerHour: 10,000 in a second are no budget.
const maxRequests = 36_000_000

func duration(zero bool) check {
	want := "want a duration such as 12h or 30m"
	if zero {
		want += ", or 0 for off"
	}
	return func(text string) error {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return errors.New(want)
		case d == 0 && zero, d >= shortest:
			return nil
		case d < 0:
			return fmt.Errorf("negative, %s", want)
		default:
			return fmt.Errorf("shorter than %s, %s", shortest, want)
		}
	}
}

// longestHook bounds hooks.timeout: systemd ends the hook's service after twice that
// and some minutes.
const longestHook = 10 * time.Minute

func hookTimeout(text string) error {
	if err := duration(zeroIsRefused)(text); err != nil {
		return err
	}
	if d, err := time.ParseDuration(text); err == nil && d > longestHook {
		return fmt.Errorf("want at most %s", longestHook)
	}
	return nil
}

// number takes whole numbers as people write them; 010 could be meant as an octal
// one.
func number(least, most int) check {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		return nil
	}
}

func oneOf(allowed ...string) check {
	return func(text string) error {
		if slices.Contains(allowed, text) {
			return nil
		}
		return fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
	}
}

func boolean(text string) error { return oneOf("true", "false")(text) }

func path(text string) error {
	switch {
	case !filepath.IsAbs(text):
		return errors.New("want an absolute path")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control character in a path")
	}
	return nil
}

// maybePath may be empty: not set.
func maybePath(text string) error {
	if text == "" {
		return nil
	}
	return path(text)
}

// hosts is the grammar of a registry's host in references, with its port.
var hosts = regexp.MustCompile(`^([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?$`)

func host(text string) error {
	if len(text) > 255 || !hosts.MatchString(text) {
		return errors.New("want a host, with its port where it has one: registry.example.com:5000")
	}
	return nil
}

func fileName(text string) error {
	switch {
	case text == "", strings.ContainsRune(text, '/'):
		return errors.New("want the name of a file in podManifests, without directory")
	case text[0] == '.':
		return errors.New("kubelet ignores names with a leading dot")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control character in a file name")
	}
	return nil
}

// identifiers is containerd's grammar for namespaces and plugin names
// (github.com/containerd/containerd/v2/pkg/identifiers).
var identifiers = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

func identifier(text string) error {
	if len(text) > 76 || !identifiers.MatchString(text) {
		return errors.New("want a name of A-Z a-z 0-9, with single . _ - between")
	}
	return nil
}

// maybeIdentifier may be empty: not set.
func maybeIdentifier(text string) error {
	if text == "" {
		return nil
	}
	return identifier(text)
}

// nodeNames is the grammar of Kubernetes' object names (RFC 1123 subdomain).
var nodeNames = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func nodeName(text string) error {
	if text != "" && (len(text) > 253 || !nodeNames.MatchString(text)) {
		return errors.New("want the node's name in Kubernetes: lower case letters, digits, dots and dashes")
	}
	return nil
}
