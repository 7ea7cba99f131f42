// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// maxHostsFile limits a hosts.toml, and maxBundle each file that it names.
const maxHostsFile = 1 << 20

// checkDir rejects a directory of certs.d with files, or names of files, that cannot be read to their end. containerd's
// parser opens every file named there and reads it completely: a FIFO blocks it forever, and /dev/zero takes all
// memory. Missing files and directories are left to the parser.
func checkDir(dir string) error {
	file := filepath.Join(dir, "hosts.toml")
	if err := nodefile.Check(file, maxHostsFile); err != nil {
		return err
	}
	names := filesOf(tables(file))
	slices.Sort(names) // so that the same one is reported each time
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := checkNamed(name); err != nil {
			return fmt.Errorf("hosts.toml: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// Without a hosts.toml, or with an invalid one, it reads Docker's files.
		if !slices.Contains([]string{".crt", ".cert", ".key"}, filepath.Ext(entry.Name())) {
			continue
		}
		if err := checkNamed(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// tables parses a hosts.toml; nil if it cannot be read or parsed. containerd logs that, and uses none of it.
func tables(file string) map[string]any {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var tables map[string]any
	if toml.Unmarshal(data, &tables) != nil {
		return nil
	}
	return tables
}

// filesOf returns the paths under ca and client of a table and of the hosts in it. Keys are case-insensitive, as in
// containerd's parser.
func filesOf(table map[string]any) (names []string) {
	for key, value := range table {
		switch strings.ToLower(key) {
		case "ca", "client":
			names = append(names, pathsIn(value)...)
		case "host":
			hosts, _ := value.(map[string]any)
			for _, host := range hosts {
				of, _ := host.(map[string]any)
				names = append(names, filesOf(of)...)
			}
		}
	}
	return names
}

// pathsIn returns the texts in a value: a text, or lists of them.
func pathsIn(value any) (paths []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, each := range v {
			paths = append(paths, pathsIn(each)...)
		}
	}
	return paths
}
