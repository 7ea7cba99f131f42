// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"fmt"
	"os"
	"path/filepath"
)

// minionUnit is the unit's name in SUSE and upstream packages.
const minionUnit = "salt-minion.service"

// mayCreate decides whether to create a missing file. A node that was removed from its cluster has salt-minion disabled
// and its grains deleted: a new file would make it look like a member without roles. A missing unit does not prevent
// it: on an admin node, Salt's minion runs in a pod.
func (s *Store) mayCreate() error {
	if s.seen.Load() {
		return fmt.Errorf("%s: %w: the file was deleted, as when a node is removed", s.path, ErrNoSalt)
	}
	if minionDisabled(s.root) {
		return fmt.Errorf("%s: %w: salt-minion is disabled", s.path, ErrNoSalt)
	}
	return nil
}

// minionDisabled checks the same as `systemctl is-enabled`: the unit exists, and it is masked or no target wants it.
func minionDisabled(root string) bool {
	admin := filepath.Join(root, "etc/systemd/system")
	if target, err := os.Readlink(filepath.Join(admin, minionUnit)); err == nil && target == os.DevNull {
		return true
	}
	installed := false
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"} {
		_, err := os.Stat(filepath.Join(root, dir, minionUnit))
		installed = installed || err == nil
	}
	for _, kind := range []string{"wants", "requires"} {
		// The pattern is valid, unless root contains a bracket.
		links, _ := filepath.Glob(filepath.Join(admin, "*."+kind, minionUnit))
		if len(links) > 0 {
			return false
		}
	}
	return installed
}
