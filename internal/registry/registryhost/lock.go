// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// lockFile is locked by the process that enables or disables the local registry.
const lockFile = "local-registry-wanted.lock"

// lockPatience is how long Lock waits: such a process ends within seconds.
const lockPatience = time.Minute

// Lock keeps other processes from enabling or disabling the local registry until unlock is called or the process ends.
// Each of them reads files and then replaces them, and would undo a change made in between. It waits for at most
// lockPatience.
func (m Memory) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", m.Dir, nodefile.Plain(err))
	}
	if unlock, err = nodefile.Lock(ctx, filepath.Join(m.Dir, lockFile), lockPatience); err != nil {
		return nil, fmt.Errorf("enable or disable the local registry: %w", err)
	}
	return unlock, nil
}
