// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// maxCommand limits the arguments of a process, and an environment file, in bytes.
const maxCommand = 256 << 10

// ReadCommand asks the manager at a D-Bus address what a unit starts. root is the prefix of the files of its node.
func ReadCommand(ctx context.Context, address, root, unit string) platform.Command {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	s, err := askCommand(ctx, address, root, unit)
	if err != nil {
		return platform.Command{Err: err}
	}
	var c platform.Command
	if s.pid > 0 {
		c.Running = arguments(filepath.Join("/", root, "proc", strconv.FormatUint(uint64(s.pid), 10), "cmdline"))
	}
	if c.Environment, c.Err = s.environment(root); c.Err == nil {
		c.Words, c.Err = s.words(c.Environment)
	}
	if c.Err != nil {
		c.Environment = nil
	}
	return c
}

// arguments reads the arguments of a process; none if it has ended.
func arguments(file string) []string {
	data, err := load(file)
	if err != nil || data == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(data, "\x00"), "\x00")
}

func load(file string) (string, error) {
	f, err := nodefile.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := outside.ReadAll(f, maxCommand)
	return string(data), err
}

// starts is what the manager says about a service (org.freedesktop.systemd1(5)).
type starts struct {
	load  string
	pid   uint32
	exec  []execCommand
	env   []string // NAME=value
	files []envFile
	unset []string
}

// execCommand is a command of a unit, and envFile a file of variables, as the bus has them.
type (
	execCommand struct {
		Path                           string
		Argv, Flags                    []string
		Begin, BeginMono, End, EndMono uint64
		PID                            uint32
		Code, Status                   int32
	}
	envFile struct {
		Path    string
		MayMiss bool
	}
)

func askCommand(ctx context.Context, address, root, unit string) (s starts, err error) {
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	path := unitPath(unit)
	isLoaded := func() error { return read(ctx, conn, property{path, "Unit.LoadState", &s.load}) }
	if err = isLoaded(); IsBooted(root) && errors.Is(err, bus.ErrAbsent) {
		err = joined(ctx, isLoaded)
	}
	if err == nil && s.load != "loaded" {
		err = errors.New(outside.Text(s.load))
	}
	if err != nil {
		return s, err
	}
	return s, read(ctx, conn, property{path, "Service.MainPID", &s.pid}, property{path, "Service.ExecStartEx", &s.exec},
		property{path, "Service.Environment", &s.env}, property{path, "Service.EnvironmentFiles", &s.files},
		property{path, "Service.UnsetEnvironment", &s.unset})
}

// words returns the program and its arguments with variables replaced: $NAME alone becomes the words of its value,
// ${NAME} a part of one word, $$ a dollar sign (src/basic/env-util.c of systemd, replace_env_argv).
func (s starts) words(env map[string]string) ([]string, error) {
	if len(s.exec) != 1 || len(s.exec[0].Argv) == 0 {
		return nil, fmt.Errorf("%d commands", len(s.exec))
	}
	command := s.exec[0]
	out := []string{command.Path}
	for _, word := range command.Argv[1:] {
		name, isWhole := strings.CutPrefix(word, "$")
		switch {
		case strings.Contains(strings.Join(command.Flags, " "), "no-env-expand"):
			out = append(out, word)
		case isWhole && name != "" && !strings.ContainsAny(name[:1], "${"):
			if strings.ContainsAny(env[name], `'"\`) {
				return nil, fmt.Errorf("cannot split $%s", outside.Line(name, 128))
			}
			out = append(out, strings.Fields(env[name])...)
		default:
			out = append(out, variable().ReplaceAllStringFunc(word, func(v string) string {
				if v == "$$" {
					return "$"
				}
				return env[v[2:len(v)-1]]
			}))
		}
	}
	return out, nil
}

// variable matches a variable in a word, or an escaped dollar sign.
var variable = lazyregexp.New(`\$\$|\$\{[^}]*\}`)

// environment returns the variables of a service: those of its files override those of the unit (systemd.exec(5)).
func (s starts) environment(root string) (map[string]string, error) {
	env := map[string]string{}
	for _, assignment := range s.env {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	for _, file := range s.files {
		if err := readVariables(filepath.Join("/", root, file.Path), file.MayMiss, env); err != nil {
			return nil, err
		}
	}
	for _, name := range s.unset {
		delete(env, name)
	}
	return env, nil
}

// readVariables reads an EnvironmentFile. Its lines are those that packages and admins write: a name, and a value that
// is plain or wholly in quotes. What systemd reads from any other (src/basic/env-file.c) is not known here.
func readVariables(file string, mayMiss bool, env map[string]string) error {
	if strings.ContainsAny(file, "*?[") {
		return fmt.Errorf("%s: cannot read a pattern of files", file)
	}
	text, err := load(file)
	if err != nil && (!mayMiss || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("%s: %w", file, err)
	}
	for line := range strings.Lines(text) {
		line = strings.Trim(line, " \t\r\n")
		m := assignment().FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, `\`):
			return fmt.Errorf("%s: cannot read a line that is continued", file)
		case line == "" || strings.ContainsAny(line[:1], "#;"):
		case m == nil:
			return fmt.Errorf("%s: cannot read the line of %s", file, outside.Line(strings.SplitN(line, "=", 2)[0], 64))
		default:
			env[m[1]] = m[2] + m[3] + m[4]
		}
	}
	return nil
}

// assignment matches a name with a value in double quotes, in single quotes, or plain.
var assignment = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?:"([^"\\]*)"|'([^'\\]*)'|([^'"\\]*))$`)
