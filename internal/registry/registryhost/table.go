// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
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
	var t localregistry.Table
	if err == nil {
		t, err = table.Parse(data)
	}
	if err != nil {
		return localregistry.Table{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// NewKeeper returns a keeper of the table in dir, the state directory. hosts reads the local registry's position from
// hosts.toml. The journal of its answers is below root.
func NewKeeper(root, dir string, hosts localregistry.Hosts) *localregistry.Keeper {
	return &localregistry.Keeper{
		Store: NewStore(dir), Hosts: hosts,
		Load:    func() (localregistry.Table, error) { return ReadTable(filepath.Join(dir, table.File)) },
		Journal: AnswersAt(filepath.Join(root, AnswersDir, answer.JournalFile)),
		Ask:     Ask,
	}
}

// AnswersDir is the runtime directory of the local registry, with the journal of its answers.
const AnswersDir = "/run/image-update-agent-local-registry"

// AnswersAt returns a reader of the journal at path, which reads it whenever it changes. A missing journal is not an
// error. The local registry runs as another user, so its data is shown but decides nothing.
func AnswersAt(path string) func() (localregistry.Journal, error) {
	file := &nodefile.Cached[localregistry.Journal]{
		Path: path, Limit: 2 * answer.MaxJournal, AnyOwner: true, Parse: parseAnswers,
	}
	return func() (localregistry.Journal, error) {
		journal, _, err := file.Get()
		return journal, err
	}
}

// parseAnswers skips invalid lines.
func parseAnswers(data []byte) (localregistry.Journal, error) {
	a := localregistry.Journal{Last: map[string]time.Time{}}
	for line := range strings.Lines(string(data)) {
		seconds, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		result, image, _ := strings.Cut(rest, " ")
		unix, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || outside.Text(image) != image {
			continue
		}
		switch answer.Result(result) {
		case answer.Served:
			a.Served++
			if _, ok := a.Last[image]; ok || len(a.Last) < table.MaxEntries {
				a.Last[image] = outside.Time(time.Unix(unix, 0))
			}
		case answer.Unknown:
			a.Unknown++
		case answer.Refused:
			a.Refused++
		}
	}
	return a, nil
}

// Ask requests a tag from the local registry as containerd does, until ctx ends. It returns an error if the answer
// differs from the entry.
func Ask(ctx context.Context, e localregistry.Entry) error { return ask(ctx, localregistry.Address, e) }

func ask(ctx context.Context, address string, e localregistry.Entry) error {
	named, err := digestAt(ctx, address, e)
	if err != nil {
		return fmt.Errorf("local registry at %s: %w", address, err)
	}
	if named != digest.Digest(e.Digest) {
		return fmt.Errorf("local registry at %s: %s:%s is %q, not %s: another program may answer there",
			address, e.Repository, e.Tag, outside.Text(named.String()), e.Digest)
	}
	return nil
}

// digestAt returns the digest of a tag from the local registry at an address.
func digestAt(ctx context.Context, address string, e localregistry.Entry) (digest.Digest, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	head := "HEAD /v2/" + e.Repository + "/manifests/" + e.Tag + "?ns=" + e.Registry + " HTTP/1.1\r\n" +
		"Host: " + address + "\r\nUser-Agent: " + answer.AgentName + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodHead})
	if err != nil {
		return "", err
	}
	_ = response.Body.Close() // an answer to HEAD has none
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return digest.Digest(response.Header.Get("Docker-Content-Digest")), nil
}
