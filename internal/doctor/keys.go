// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/signature"
)

// checkKeys lists the keys that signatures are verified with, by fingerprint,
// where a repository wants signatures; each file that does not count is a finding.
func checkKeys(ctx context.Context, repositories []config.Repository, dirs []string) []Finding {
	const check = "signature keys"
	strictest := ""
	for _, r := range repositories {
		if r.Signatures == "require" || r.Signatures == "warn" && strictest == "" {
			strictest = r.Signatures
		}
	}
	if strictest == "" {
		return []Finding{ok(check, "no repository wants signatures")}
	}
	log := new(keyLog)
	_, err := signature.New(signature.Options{Dirs: dirs, Log: slog.New(log)}).Keys(ctx)
	var out []Finding
	for _, line := range log.refused {
		out = append(out, warn(check, line, "a key is a *.pem file with one public key: correct it or remove it"))
	}
	if err == nil {
		for _, line := range log.unread { // else the error has it
			out = append(out, warn(check, line, "correct signatureKeys"))
		}
	}
	const remedy = "put the publisher's public key there as a *.pem file, or set signatureKeys"
	switch {
	case err == nil:
		return append(out, ok(check, strings.Join(log.loaded, ", ")))
	case strictest == "require":
		return append(out, fail(check, err, remedy+"; until then nothing is staged of what requires a signature"))
	default:
		return append(out, warn(check, err.Error(), remedy))
	}
}

// keyLog gets a line for each file of keys that is read: with its fingerprint where
// it counts, with a warning where it does not.
type keyLog struct {
	mu      sync.Mutex
	loaded  []string
	refused []string // files
	unread  []string // of directories
}

func (k *keyLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (k *keyLog) Handle(_ context.Context, r slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	parts, attrs := []string{r.Message}, map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		parts = append(parts, a.Value.String())
		attrs[a.Key] = a.Value.String()
		return true
	})
	switch {
	case r.Level >= slog.LevelWarn && attrs["file"] == "":
		k.unread = append(k.unread, strings.Join(parts, ": "))
	case r.Level >= slog.LevelWarn:
		k.refused = append(k.refused, strings.Join(parts, ": "))
	default:
		k.loaded = append(k.loaded, attrs["file"]+" ("+attrs["kind"]+", "+attrs["key"]+")")
	}
	return nil
}

func (k *keyLog) WithAttrs([]slog.Attr) slog.Handler { return k }
func (k *keyLog) WithGroup(string) slog.Handler      { return k }
