// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// TableFile is the name of the table in the state directory.
const TableFile = "localhost.json"

// tableVersion is the meaning of the fields of the file. An agent that finds a newer one answers nothing.
const tableVersion = 1

// tableFile is the file.
type tableFile struct {
	SchemaVersion int `json:"schemaVersion"`
	ownhost.Table
}

// Store keeps the table in a directory that everybody may read: the own host runs as a user of its own.
// It implements ownhost.Store.
type Store struct{ dir string }

// NewStore keeps the table in dir, the state directory.
func NewStore(dir string) *Store { return &Store{dir} }

// Save writes the table, whole or not at all. It writes no equal one, and none that Table.Check refuses.
func (s *Store) Save(ctx context.Context, t ownhost.Table) error {
	if err := s.save(ctx, t); err != nil {
		return fmt.Errorf("own host's table: %w", err)
	}
	return nil
}

func (s *Store) save(ctx context.Context, t ownhost.Table) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	if t.Entries == nil {
		t.Entries = []ownhost.Entry{}
	}
	data, err := json.MarshalIndent(tableFile{tableVersion, t}, "", "  ")
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
	_, err = dir.Write(TableFile, append(data, '\n'), nodefile.Options{Mode: 0o644})
	return err
}

// ReadTable reads the table at path. One that cannot be used (not there, torn, of another program, newer, too large) is
// an error, and answers nothing.
func ReadTable(path string) (ownhost.Table, error) {
	data, err := nodefile.Read(path, maxTable)
	if err != nil {
		return ownhost.Table{}, fmt.Errorf("%s: %w", path, err)
	}
	t, err := parseTable(data)
	if err != nil {
		return ownhost.Table{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func parseTable(data []byte) (ownhost.Table, error) {
	var file tableFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&file); err != nil {
		return ownhost.Table{}, errors.New("no JSON of a table") // the cause has bytes of the file
	}
	if decoder.More() {
		return ownhost.Table{}, errors.New("more than a table")
	}
	if file.SchemaVersion != tableVersion {
		return ownhost.Table{}, fmt.Errorf("version %d, want %d", file.SchemaVersion, tableVersion)
	}
	if err := file.Check(); err != nil {
		return ownhost.Table{}, err
	}
	return file.Table, nil
}
