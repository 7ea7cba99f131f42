// SPDX-License-Identifier: Apache-2.0

// Command mutants removes the guards of docs/dev/security-evidence.md from the code, one at a time, and runs their
// tests: if the tests still pass, the guard is a survivor. It works on a copy of the tree; `make mutants` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	rows := flag.String("rows", "", "only these rows of docs/dev/security-evidence.md, as in T1,N2")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bad, err := run(ctx, os.Stdout, filepath.Join("..", ""), *rows)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		bad = true
	}
	if bad {
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// run tries the guards of the tree at root; bad: one survived, or could not be tried.
func run(ctx context.Context, out io.Writer, root, rows string) (bad bool, err error) {
	guards, err := parse(guardsText)
	if err != nil {
		return true, err
	}
	if rows != "" {
		guards = slices.DeleteFunc(guards, func(g guard) bool { return !slices.Contains(strings.Split(rows, ","), g.row) })
	}
	if len(guards) == 0 {
		return true, fmt.Errorf("no guard of the rows %s", rows)
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return true, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := copyTree(root, scratch); err != nil {
		return true, err
	}
	tree := tree{scratch}
	if err := tree.sound(ctx, guards); err != nil {
		return true, err
	}
	count := map[verdict]int{}
	for n, g := range guards {
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		began := time.Now()
		v, detail := tree.try(ctx, g)
		count[v]++
		fmt.Fprintf(out, "%3d/%d  %-8s  %-3s  %s: %s  (%.0f s)\n",
			n+1, len(guards), v, g.row, g.file, strings.Join(g.tests, " "), time.Since(began).Seconds())
		if v != killed {
			fmt.Fprintf(out, "         %s\n", strings.ReplaceAll(strings.TrimSpace(detail), "\n", "\n         "))
		}
	}
	fmt.Fprintf(out, "killed %d of %d, survived %d, not tried %d\n",
		count[killed], len(guards), count[survived], count[untried])
	return count[killed] != len(guards), nil
}
