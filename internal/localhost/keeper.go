// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"path/filepath"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// NewKeeper keeps the table in dir, the state directory. hosts says where hosts.toml names the own host. The journal of
// its answers is below root.
func NewKeeper(root, dir string, hosts ownhost.Hosts) *ownhost.Keeper {
	return &ownhost.Keeper{
		Store: NewStore(dir), Hosts: hosts,
		Load:    func() (ownhost.Table, error) { return ReadTable(filepath.Join(dir, TableFile)) },
		Journal: journal(filepath.Join(root, AnswersDir, AnswersFile)),
		Ask:     Ask,
	}
}

// journal reads the journal of answers at path.
func journal(path string) func() (ownhost.Journal, error) {
	file := AnswersAt(path)
	return func() (ownhost.Journal, error) {
		a, _, err := file.Get()
		return ownhost.Journal(a), err
	}
}
