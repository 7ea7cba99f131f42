// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"path/filepath"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

// NewKeeper returns a keeper of the table in dir, the state directory. hosts reads the local registry's position from
// hosts.toml. The journal of its answers is below root.
func NewKeeper(root, dir string, hosts localregistry.Hosts) *localregistry.Keeper {
	return &localregistry.Keeper{
		Store: NewStore(dir), Hosts: hosts,
		Load:    func() (localregistry.Table, error) { return ReadTable(filepath.Join(dir, table.File)) },
		Journal: journal(filepath.Join(root, AnswersDir, answer.JournalFile)),
		Ask:     Ask,
	}
}

// journal reads the journal of answers at path.
func journal(path string) func() (localregistry.Journal, error) {
	file := AnswersAt(path)
	return func() (localregistry.Journal, error) {
		a, _, err := file.Get()
		return localregistry.Journal(a), err
	}
}
