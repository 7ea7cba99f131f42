// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog/channel"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

// catalogDir is where the verified catalog is stored, below the state directory.
const catalogDir = "catalog"

// catalogOf returns the configured release catalog, or nil if the settings name none.
func catalogOf(s settings, from origin, log *slog.Logger) (catalog.Channel, error) {
	if s.Catalog.Repository == "" {
		return nil, nil //nolint:nilnil // an agent without a catalog has none
	}
	return channelOf(s, from, log)
}

// channelOf returns the channel of the configured release catalog. A rewrite does not change its name: it says what it
// was published as.
func channelOf(s settings, from origin, log *slog.Logger) (*channel.Channel, error) {
	repository, err := release.NormalizeRepository(s.Catalog.Repository)
	if err != nil {
		return nil, configError{fmt.Errorf("catalog: %w", err)}
	}
	keys := s.Catalog.Keys
	if len(keys) == 0 {
		keys = s.SignatureKeys
	}
	return channel.New(channel.Options{
		Repository: repository, Channel: s.Catalog.Channel, Dir: filepath.Join(s.StateDir, catalogDir), From: from,
		Verifier: signature.Releases{
			Verifier: signature.New(signature.Options{Dirs: keys, Require: s.Catalog.RequiredKeys, Log: log}), From: from,
		},
		Signatures: policy.Signatures(s.Catalog.Signatures), Now: time.Now, Log: log,
	}), nil
}
