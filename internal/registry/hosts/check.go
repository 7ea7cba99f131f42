// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// maxHostsFile is for a hosts.toml, and maxBundle for each file that it names.
const maxHostsFile = 1 << 20

// checkDir refuses a directory of certs.d that has or names what cannot be
// read to its end. containerd's parser opens whatever is named there and reads it
// whole: a FIFO stops it for ever, and /dev/zero takes all memory. What is not there
// is left to it.
func checkDir(dir string) error {
	file := filepath.Join(dir, "hosts.toml")
	if err := nodefile.Check(file, maxHostsFile); err != nil {
		return err
	}
	names := filesOf(tables(file))
	slices.Sort(names) // the same one is reported each time
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := nodefile.Check(name, maxBundle); err != nil {
			return fmt.Errorf("hosts.toml: %w", err)
		}
	}
	// Without a hosts.toml, or with one that it cannot parse, it reads Docker's files.
	for _, pattern := range []string{"*.crt", "*.cert", "*.key"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			continue // the pattern is good, but for a dir with [ in its name
		}
		for _, name := range found {
			if err := nodefile.Check(name, maxBundle); err != nil {
				return err
			}
		}
	}
	return nil
}

// tables parses a hosts.toml; nil: it cannot be read or parsed. containerd logs that,
// and takes none of it.
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

// filesOf are the paths under ca and client of a table and of the hosts in it. Keys are
// taken in any letters, as containerd's parser does.
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

// pathsIn are the texts in a value: one, or lists of them.
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
