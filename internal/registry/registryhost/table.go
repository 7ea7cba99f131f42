// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// Store stores the table in a directory that all users may read, because the local registry runs as another user. It
// implements localregistry.Store.
type Store struct{ dir string }

// NewStore returns a store in dir, the state directory.
func NewStore(dir string) *Store { return &Store{dir} }

// Save writes the table atomically. It writes neither an equal table nor one that Table.Check rejects.
func (s *Store) Save(ctx context.Context, t localregistry.Table) error {
	if err := s.save(ctx, t); err != nil {
		return fmt.Errorf("local registry's table: %w", err)
	}
	return nil
}

func (s *Store) save(ctx context.Context, t localregistry.Table) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := table.Format(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	dir, err := nodefile.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	_, err = dir.Write(table.File, data, nodefile.Options{Mode: 0o644})
	return err
}

// ReadTable reads the table at path. An unusable one (missing, torn, of another program, newer, too large) is an error,
// and answers nothing.
func ReadTable(path string) (localregistry.Table, error) {
	data, err := nodefile.Read(path, table.MaxFile)
	if err != nil {
		return localregistry.Table{}, fmt.Errorf("%s: %w", path, err)
	}
	t, err := table.Parse(data)
	if err != nil {
		return localregistry.Table{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
