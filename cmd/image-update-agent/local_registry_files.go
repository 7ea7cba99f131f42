// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// localRegistryFiles are the hosts.toml files that the daemon changes for a person. It implements localregistry.Files.
type localRegistryFiles struct{ settings }

func (f localRegistryFiles) Enable(ctx context.Context, registry string, at localregistry.Position) (bool, error) {
	if _, err := f.readByContainerd(ctx); err != nil {
		return false, err
	}
	return f.change(ctx, func(r registryhost.Registries) (registryhost.Change, error) {
		return r.Enable(ctx, registry, at)
	})
}

func (f localRegistryFiles) Disable(ctx context.Context, registry string) (bool, error) {
	return f.change(ctx, func(r registryhost.Registries) (registryhost.Change, error) {
		return r.Disable(ctx, registry)
	})
}

func (f localRegistryFiles) change(
	ctx context.Context, of func(registryhost.Registries) (registryhost.Change, error),
) (changed bool, err error) {
	m := f.memory()
	unlock, err := m.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	c, err := of(m.Registries)
	if err != nil {
		return false, err
	}
	remembered, err := m.CarryOut(c)
	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: run systemctl restart image-update-agent if the directory is newer than the daemon; otherwise "+
			"add ReadWritePaths=%s below [Service] with systemctl edit image-update-agent", err,
			strings.Join(m.Registries.Dirs, " "))
	}
	return err == nil && (remembered || !c.IsNone()), err
}
