// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"io"
	"net/http"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Dir is what containerd makes of one directory of certs.d.
type Dir struct {
	Path string // of the directory
	// Server is the host that hosts.toml names as its server; empty: none.
	Server string
	// HostTable: hosts.toml has a table of hosts, be it empty. containerd 1.6 takes a
	// file without one for broken.
	HostTable bool
	// Authorities: a host has a ca of its own.
	Authorities bool
	// Unparsed is what is wrong with the syntax of hosts.toml. containerd logs it,
	// and asks the namespace's own host as if there were no file.
	Unparsed error
	// Err is what is wrong with the files that it names. containerd pulls nothing
	// then.
	Err error
}

// Dirs reads all directories of hosts below those of certs.d, by containerd's
// own parser. Those without a hosts.toml are left out.
func Dirs(ctx context.Context, certsDirs []string) []Dir {
	var found []Dir
	for _, dir := range certsDirs {
		files, err := filepath.Glob(filepath.Join(dir, "*", "hosts.toml"))
		if err != nil {
			continue // the pattern is good, but for a dir with [ in its name
		}
		for _, file := range files {
			found = append(found, readDir(ctx, filepath.Dir(file)))
		}
	}
	return found
}

// noServer is the namespace of a file, and so its server where it names none.
const noServer = "namespace.invalid"

func readDir(ctx context.Context, dir string) Dir {
	found, logged := Dir{Path: dir, Err: outside.Error(checkDir(dir))}, new(errorLog)
	if found.Err != nil {
		return found
	}
	// The context of the configuration carries the logger.
	configure := config.ConfigureHosts(log.WithLogger(ctx, logged.logger()), config.HostOptions{
		HostDir: func(string) (string, error) { return dir, nil },
	})
	hosts, err := configure(noServer)
	found.Err, found.Unparsed = outside.Error(err), outside.Error(logged.err)
	if err != nil || logged.err != nil {
		return found
	}
	if server := hosts[len(hosts)-1].Host; server != noServer {
		found.Server = server
	}
	_, found.HostTable = tables(filepath.Join(dir, "hosts.toml"))["host"]
	for _, host := range hosts {
		if tr, ok := host.Client.Transport.(*http.Transport); ok && tr.TLSClientConfig.RootCAs != nil {
			found.Authorities = true
		}
	}
	return found
}

// errorLog keeps the first error that containerd's parser logs: it is reported nowhere
// else.
type errorLog struct{ err error }

// Format is logrus' Formatter; the line itself goes nowhere.
func (l *errorLog) Format(e *log.Entry) ([]byte, error) {
	if err, ok := e.Data["error"].(error); ok && l.err == nil {
		l.err = err
	}
	return nil, nil
}

// maskedFormat hides secrets in what containerd's parser logs: it quotes URLs.
type maskedFormat struct {
	of interface {
		Format(*log.Entry) ([]byte, error)
	}
}

// Format is logrus' Formatter.
func (m maskedFormat) Format(e *log.Entry) ([]byte, error) {
	line, err := m.of.Format(e)
	return []byte(outside.Mask(string(line))), err
}

// masked has the context's logger, which is containerd's own unless another was set, hide secrets.
func masked(ctx context.Context) context.Context {
	of := log.G(ctx).Logger
	logger := another(of)
	logger.SetFormatter(maskedFormat{of.Formatter})
	logger.SetOutput(of.Out)
	logger.SetLevel(of.GetLevel())
	return log.WithLogger(ctx, logger.WithFields(nil))
}

func (l *errorLog) logger() *log.Entry {
	logger := another(log.L.Logger)
	logger.SetFormatter(l)
	logger.SetOutput(io.Discard)
	logger.SetLevel(log.ErrorLevel)
	return logger.WithFields(nil)
}

// another makes a zero value of a type whose package is containerd's business.
func another[T any](*T) *T { return new(T) }
