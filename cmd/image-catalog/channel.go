// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

// read returns the version that CHANNEL or CHANNEL@VERSION names.
func read(ctx context.Context, p *publish.Publisher, word string) (publish.Version, error) {
	if !isOld(word) {
		return p.Current(ctx, word)
	}
	channel, version, err := parseVersion(word)
	if err != nil {
		return publish.Version{}, err
	}
	return p.ReadVersion(ctx, channel, version)
}

// parseVersion divides CHANNEL@VERSION.
func parseVersion(word string) (channel string, version uint64, err error) {
	channel, number, _ := strings.Cut(word, "@")
	version, err = strconv.ParseUint(number, 10, 53)
	if err != nil || version == 0 {
		return "", 0, cli.Usage(fmt.Errorf("%s: want CHANNEL or CHANNEL@VERSION, as in prod@30", word))
	}
	return channel, version, publish.CheckChannel(channel)
}

// isOld reports whether a word names one version, and not what a channel has now.
func isOld(word string) bool { return strings.Contains(word, "@") }
