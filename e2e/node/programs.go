// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// gomod is the file of the module in whose directory this process runs.
var gomod = sync.OnceValues(func() (string, error) {
	return output(context.Background(), []string{"go", "env", "GOMOD"})
})

// checkout returns the main module's directory; tests and demo run inside the e2e module.
func (n *Node) checkout() string {
	n.tb.Helper()
	gomod, err := gomod()
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	e2e := filepath.Dir(gomod)
	if filepath.Base(e2e) != "e2e" {
		n.tb.Fatalf("node: %s: not the e2e module: run it inside e2e", gomod)
	}
	return filepath.Dir(e2e)
}

// buildTool compiles e2e/cmd/NAME, without cgo: the answer program runs in an image without a C library. The result
// stays in e2e/.build, where `go build` finds it up to date next time.
func (n *Node) buildTool(name string) string {
	n.tb.Helper()
	return n.build(filepath.Join(n.checkout(), "e2e"), name, name)
}

// buildAgent compiles the agent from the checkout, with the main module's dependencies, the Makefile's build tags
// (GO_TAGS) and these tags.
func (n *Node) buildAgent(as string, tags ...string) string {
	n.tb.Helper()
	tags = append(tags, "grpcnotrace")
	return n.build(n.checkout(), "image-update-agent", as, "-tags", strings.Join(tags, ","))
}

// localRegistryProgram returns the path of the local registry's program, which the first call builds.
func (n *Node) localRegistryProgram() string {
	n.tb.Helper()
	const name = "image-update-agent-local-registry"
	return n.build(n.checkout(), name, name)
}

// builds are the programs that this process has built, by path: each is built once, since go build takes more than a
// second even if a program is up to date. parts are the directories of the parts that it uses.
var builds, parts sync.Map

func (n *Node) build(module, name, as string, flags ...string) string {
	n.tb.Helper()
	program := filepath.Join(n.checkout(), "e2e", ".build", as)
	argv := []string{"env", "CGO_ENABLED=0", "go", "-C", module, "build", "-trimpath", "-ldflags", "-s -w", "-o", program}
	argv = append(append(argv, flags...), "./cmd/"+name)
	once, _ := builds.LoadOrStore(program, sync.OnceValue(func() error {
		unlock, err := lockBuilds(filepath.Dir(program))
		if err != nil {
			return err
		}
		defer unlock()
		_, err = output(context.Background(), argv) // other nodes use it, too, so the build must not end with this test
		return err
	}))
	if err := once.(func() error)(); err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	return program
}

// lockBuilds blocks the processes of other packages: one would replace the program that another starts. The second
// build finds it up to date.
func lockBuilds(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// Part returns the directory of a part that tools/setup builds.
func (n *Node) Part(part string) string {
	n.tb.Helper()
	setup := filepath.Join(n.checkout(), "tools/setup")
	once, _ := parts.LoadOrStore(part, sync.OnceValues(func() (string, error) {
		return output(context.Background(), []string{setup, "where", part})
	}))
	dir, err := once.(func() (string, error))()
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	return dir
}

// installed returns the path of a program that Debian packages install.
func (n *Node) installed(name string) string {
	n.tb.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		n.tb.Fatalf("node: %s: not installed, run: tools/setup packages", name)
	}
	return program
}

// output runs a program outside of the node and returns its trimmed output.
func (n *Node) output(argv ...string) string {
	n.tb.Helper()
	text, err := output(n.tb.Context(), argv)
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	return text
}

func output(ctx context.Context, argv []string) (string, error) {
	text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// searchPath returns PATH in the node: the directories first, then Debian's.
func searchPath(first ...string) string {
	return "PATH=" + strings.Join(append(first, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
		string(os.PathListSeparator))
}
