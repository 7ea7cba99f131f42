// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"fmt"
	"os"
	"path/filepath"
)

// minionUnit is how SUSE and upstream name the unit.
const minionUnit = "salt-minion.service"

// mayCreate decides about a file that is not there. A node that was removed
// from its cluster has salt-minion disabled and its grains deleted: a new file
// would make it look like a member without roles. No unit at all is no
// reason: on an admin node, Salt's minion runs in a pod.
func (s *Store) mayCreate() error {
	if s.seen.Load() {
		return fmt.Errorf("%s: %w: it was deleted, as removing a node does", s.path, ErrNoSalt)
	}
	if minionDisabled(s.root) {
		return fmt.Errorf("%s: %w: salt-minion is disabled", s.path, ErrNoSalt)
	}
	return nil
}

// minionDisabled reads what `systemctl is-enabled` reads: the unit is there,
// and it is masked or no target wants it.
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
		// The pattern is ours and cannot be malformed, unless root holds a bracket.
		links, _ := filepath.Glob(filepath.Join(admin, "*."+kind, minionUnit))
		if len(links) > 0 {
			return false
		}
	}
	return installed
}
