// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"path/filepath"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// NewKeeper keeps the table in dir, the state directory. hosts says where hosts.toml names the own host.
func NewKeeper(dir string, hosts ownhost.Hosts) *ownhost.Keeper {
	return &ownhost.Keeper{
		Store: NewStore(dir), Hosts: hosts,
		Load: func() (ownhost.Table, error) { return ReadTable(filepath.Join(dir, TableFile)) },
	}
}
