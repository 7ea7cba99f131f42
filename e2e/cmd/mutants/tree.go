// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "SURVIVED"
	untried  verdict = "UNTRIED"
)

// tree is a copy of the sources.
type tree struct{ dir string }

// copyTree copies the sources, without git's files and build output.
func copyTree(from, to string) error {
	skip := []string{".git", "bin", "dist", "vendor", filepath.Join("e2e", ".build"), filepath.Join("e2e", "bin")}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		switch {
		case err != nil:
			return err
		case slices.Contains(skip, rel) && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular() || rel == ".git": // of a worktree
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, info.Mode().Perm())
	})
}

// sound runs all tests once with all guards in place: a test that fails anyway shows nothing.
func (t tree) sound(ctx context.Context, guards []guard) error {
	rooms := map[string][]string{}
	for _, g := range guards {
		rooms[g.room] = append(rooms[g.room], g.tests...)
	}
	for room, tests := range rooms {
		slices.Sort(tests)
		if out, err := t.test(ctx, room, slices.Compact(tests)); err != nil {
			return fmt.Errorf("%s: fails with all guards in place: %w\n%s", room, err, out)
		}
	}
	return nil
}

// try removes one guard and restores it.
func (t tree) try(ctx context.Context, g guard) (v verdict, detail string) {
	name := filepath.Join(t.dir, filepath.FromSlash(g.file))
	whole, err := os.ReadFile(name)
	if err != nil {
		return untried, err.Error()
	}
	without, err := g.takenFrom(string(whole))
	if err != nil {
		return untried, err.Error()
	}
	if err := os.WriteFile(name, []byte(without), 0o600); err != nil {
		return untried, err.Error()
	}
	defer func() {
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			v, detail = untried, err.Error()
		}
	}()
	out, err := t.test(ctx, g.room, g.tests)
	exit := &exec.ExitError{}
	switch {
	case err == nil && strings.Contains(out, "[no tests to run]"):
		return untried, "there is no such test"
	case err == nil:
		return survived, "no test fails without it:\n" + g.old
	case !errors.As(err, &exit):
		return untried, err.Error()
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return untried, "what stands in its place does not build:\n" + out
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic: "):
		return untried, out
	}
	return killed, ""
}

// takenFrom returns the text of the file without the guard.
func (g guard) takenFrom(text string) (string, error) {
	if n := strings.Count(text, g.old); n != 1 {
		return "", fmt.Errorf("the snippet stands %d times in the file, not once: bring guards.txt up to date:\n%s", n, g.old)
	}
	return strings.Replace(text, g.old, g.new, 1), nil
}

// test runs tests in one directory.
func (t tree) test(ctx context.Context, room string, tests []string) (string, error) {
	pattern := "^(" + strings.Join(tests, "|") + ")$"
	cmd := exec.CommandContext(ctx,
		"go", "test", "-count=1", "-vet=off", "-timeout=5m", "-run", pattern, "./"+room)
	cmd.Dir = t.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
