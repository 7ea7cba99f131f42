// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
	return "a ca or client, which is not named like a file"
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
