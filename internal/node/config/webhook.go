// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

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
