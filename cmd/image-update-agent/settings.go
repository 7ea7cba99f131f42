// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/systemd"
)

// settings are the configuration as the verbs use it.
type settings struct {
	config.Settings
	root     string
	certsD   config.CertsD
	platform platform.Platform
	// unread is why kubelet may read another directory than podManifests, as it is now; nil: it does not.
	unread func() error
}

// load reads the configuration.
func (a *app) load() (*config.Config, error) {
	c, err := config.Load(a.sources())
	if err != nil {
		return nil, configError{err}
	}
	return c, nil
}

func (a *app) sources() config.Sources {
	return config.Sources{
		Root: a.below(), File: a.config, Interval: os.Getenv(config.IntervalVariable), Command: a.starts,
	}
}

// starts asks the service manager of the node what a unit starts.
func (a *app) starts(unit string) platform.Command {
	return systemd.ReadCommand(context.Background(), systemBus(a.below()), a.below(), unit)
}

// below is --root as a prefix of absolute paths: empty for the host's own.
func (a *app) below() string { return strings.TrimSuffix(filepath.Clean(a.root), "/") }

func (a *app) settings() (settings, error) {
	c, err := a.load()
	if err != nil {
		return settings{}, err
	}
	return a.settingsOf(c), nil
}

func (a *app) settingsOf(c *config.Config) settings {
	return settings{
		Settings: c.Settings, root: filepath.Clean(a.root), certsD: c.CertsD, platform: c.Platform, unread: c.Unread,
	}
}

// daemonClient asks the daemon to act. It runs with the settings that it has read, whatever the files say now: of an
// invalid configuration only its directories are needed.
func (a *app) daemonClient() (*api.Client, error) {
	s, err := a.daemonSettings()
	if err != nil {
		return nil, err
	}
	return api.NewClient(s.socket("agent.sock")), nil
}

// daemonSettings are the settings, or the directories of the daemon alone: then a.invalid says why.
func (a *app) daemonSettings() (settings, error) {
	s, err := a.settings()
	if isConfig(err) {
		if s.StateDir, s.RuntimeDir = config.Directories(a.sources()); s.RuntimeDir != "" {
			a.invalid, err = err, nil
		}
	}
	return s, err
}

// owned are the pod manifests that the distribution of Kubernetes writes, with its name. Their names alone count:
// podManifests may name the directory in other words.
func (s settings) owned() map[string]string {
	files := map[string]string{}
	for _, name := range s.platform.Owned {
		files[name] = s.platform.Name
	}
	return files
}

// socket is the path of one of the daemon's sockets.
func (s settings) socket(name string) string { return filepath.Join(s.RuntimeDir, name) }

const maxMachineID = 4 << 10 // bytes of a file

// machineID is what makes this node's poll slot its own (machine-id(5)); the
// host's name where there is none, as in an image that was never booted.
func (s settings) machineID() string {
	if file, err := nodefile.Open(filepath.Join(s.root, "etc/machine-id")); err == nil {
		data, err := outside.ReadAll(file, maxMachineID)
		if err = errors.Join(err, file.Close()); err == nil && len(data) > 0 {
			return string(data)
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// lastStatus is the last status that a daemon wrote.
func (s settings) lastStatus() (status.Status, error) {
	return state.ReadStatus(s.RuntimeDir, s.StateDir)
}

// logger writes where a daemon's log belongs: to standard error, which the
// journal reads.
func logger(w io.Writer, l config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: outside.HideAttr}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// quietLog is for verbs that print their result: what did not work comes back as an error.
func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// encoder writes JSON values.
func (a *app) encoder() *json.Encoder { return json.NewEncoder(outside.JSON(a.out)) }

// show writes a value for programs, or as text for people.
func (a *app) show(v any, text func() error) error {
	if a.output == "json" {
		return cli.PrintJSON(a.out, v)
	}
	if a.quiet {
		return nil
	}
	return text()
}

// progress shows how far long work is; not with --quiet.
func (a *app) progress() *statuspage.Progress {
	if a.quiet {
		return statuspage.NewProgress(io.Discard)
	}
	return statuspage.NewProgress(a.files.err)
}

// printLines writes one JSON value a line.
func printLines[T any](enc *json.Encoder, lines []T) error {
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// kubeletKubeconfig returns the path of kubelet's kubeconfig.
func (s settings) kubeletKubeconfig() string {
	all := s.platform.Kubeconfigs
	if len(all) == 0 {
		return ""
	}
	return filepath.Join("/", s.root, all[len(all)-1])
}
