// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// forget removes the data of consumers that are no longer configured: if one is configured again, it is new. Without
// consumers, no retry is pending either. It runs once.
func (d *Outbox) forget() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgotten {
		return nil
	}
	entries, err := os.ReadDir(d.stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hook: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); d.isForgotten(name) {
			if err := os.Remove(filepath.Join(d.stateDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("hook: %w", err)
			}
		}
	}
	d.forgotten = true
	return nil
}

func (d *Outbox) isForgotten(file string) bool {
	if file == retryFile {
		return len(d.consumers) == 0
	}
	consumer := Programs
	if file != deliveredFile(Programs) {
		before, isJSON := strings.CutSuffix(file, ".json")
		name, isHook := strings.CutPrefix(before, "hook.")
		if consumer = name; !isJSON || !isHook || consumer == "" {
			return false
		}
	}
	return !slices.Contains(d.consumers, consumer)
}
