// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
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
	for _, name := range Files(file) {
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

// refusals are the errors of containerd's parser, by their beginnings, in words that quote nothing of hosts.toml. Every
// text in the file may be a password, at its place or at a wrong one.
var refusals = []struct{ begins, means string }{
	{"unable to parse server ", "a host, or the server, is not a URL"},
	{"unknown capability ", "unknown capability: want pull, resolve, push, referrers"},
	{"invalid type ", "a header, ca or client has the wrong type"},
	{"unable to cast ", "a header, ca or client has the wrong type"},
	{"invalid pair ", "client: want pairs of a certificate and its key"},
	{"time: ", `dial_timeout: want a duration such as "5s"`},
}

// The beginnings of containerd's errors of files that hosts.toml names.
const (
	noCertificates = "unable to load CA cert "
	noPair         = "failed to load X509 key pair: "
)

// refused returns an error of containerd's parser without the words of hosts.toml, which it quotes.
func refused(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if path, is := errors.AsType[*fs.PathError](err); is {
		return fmt.Errorf("%s: %w", shownPath(path.Path), path.Err)
	}
	if quoted, is := strings.CutPrefix(text, noCertificates); is {
		path, _ := strconv.Unquote(quoted)
		return fmt.Errorf("%s: %w", shownPath(path), errNoCertificates)
	}
	if cause, is := strings.CutPrefix(text, noPair); is {
		return errors.New("client: " + outside.Text(cause)) // Go's words about PEM and its key
	}
	for _, r := range refusals {
		if strings.HasPrefix(text, r.begins) {
			return errors.New(r.means)
		}
	}
	return outside.Syntax("TOML as containerd reads it", err)
}

// shownPath returns a path that hosts.toml names, unless it may be a secret at the wrong place: an embedded key, or a
// password.
func shownPath(path string) string {
	if _, err := os.Lstat(path); err == nil || namesFile().MatchString(filepath.Base(path)) {
		return outside.Text(path)
	}
	return "a ca or client that is not named like a file"
}

var namesFile = lazyregexp.New(`^[A-Za-z0-9._+-]{1,255}\.(?i:pem|crt|cert|cer|ca|key|bundle|chain)$`)

// checkNamed rejects a file that cannot be read to its end.
func checkNamed(name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil // reading ends at once
	}
	if err := nodefile.Check(name, maxBundle); err != nil {
		return fmt.Errorf("%s: %w", shownPath(name), errors.Unwrap(err)) // without the path, which Check puts first
	}
	return nil
}
