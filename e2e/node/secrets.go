// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// minSecret is the minimum length of a secret: the search would find shorter texts by chance.
const minSecret = 8

// Secret searches all output of the agent for a secret (a password, a token, the signature of a URL) when the test
// ends: the output of each call, the daemon's log, status, record and grains, in all encodings of the secret. For a
// login, also call it with user:password, which is what HTTP encodes. It does not search files that contain the secret
// legitimately, which the test wrote.
func (n *Node) Secret(secret string) {
	n.tb.Helper()
	if len(secret) < minSecret {
		n.tb.Fatalf("node: a secret of %d bytes would be found by chance; take %d", len(secret), minSecret)
	}
	n.tb.Cleanup(func() {
		searched, found, err := n.search(secret)
		switch {
		case err != nil:
			n.tb.Errorf("node: search for a secret: %v", err)
		case searched == 0:
			n.tb.Errorf("node: search for a secret: the agent has said nothing")
		case len(found) > 0:
			n.tb.Errorf("node: the agent told a secret in %q", found)
		}
	})
}

// search returns the number of searched files, and the files that contain the secret.
func (n *Node) search(secret string) (searched int, found []string, err error) {
	forms := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
	}
	look := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		searched++
		for _, form := range forms {
			if bytes.Contains(data, []byte(form)) {
				found = append(found, path)
				break
			}
		}
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(n.Dir, "log", "agent*"))
	if err != nil {
		return 0, nil, err
	}
	for _, path := range append(logs, filepath.Join(n.Root, "etc/salt/grains")) {
		if err := look(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return searched, found, err
		}
	}
	for _, dir := range []string{"run/image-update-agent", "var/lib/image-update-agent"} {
		err := filepath.WalkDir(filepath.Join(n.Root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			return look(path)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return searched, found, err
		}
	}
	return searched, found, nil
}
