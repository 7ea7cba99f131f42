// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What one package and one type may have, tests left out. A command has one file for each verb.
const (
	maxPackageLines, maxPackageFiles = 2600, 25
	maxCommandLines, maxCommandFiles = 3200, 35
	maxMethods                       = 15 // of a type below agent/
	maxPortMethods                   = 3  // of an interface below agent/, without those that it embeds
)

func TestPackagesAndTypesStayBelowTheirCeilings(t *testing.T) {
	t.Parallel()
	files, err := goFiles(os.DirFS("."))
	require.NoError(t, err)
	for _, problem := range aboveCeilings(files) {
		t.Error(problem)
	}
}

// aboveCeilings returns the packages and types that are too large, sorted.
func aboveCeilings(files []source) []string {
	lines, count, methods, ports := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, f := range files {
		if f.isTest() || f.isBeside() || strings.HasSuffix(f.dir(), "test") {
			continue
		}
		lines[f.dir()] += bytes.Count(f.text, []byte("\n"))
		count[f.dir()]++
		if strings.HasPrefix(f.path, "agent/") {
			for _, name := range methodsIn(f) {
				methods[f.dir()+"."+name]++
			}
			for name, n := range portsIn(f) {
				ports[f.dir()+"."+name] = n
			}
		}
	}
	var problems []string
	above := func(what map[string]int, unit string, limit func(name string) int) {
		for name, n := range what {
			if n > limit(name) {
				problems = append(problems, fmt.Sprintf("%s: %d %s, at most %d", name, n, unit, limit(name)))
			}
		}
	}
	ceiling := func(others, commands int) func(string) int {
		return func(name string) int {
			if strings.HasPrefix(name, "cmd/") {
				return commands
			}
			return others
		}
	}
	above(lines, "lines", ceiling(maxPackageLines, maxCommandLines))
	above(count, "files", ceiling(maxPackageFiles, maxCommandFiles))
	above(methods, "methods", ceiling(maxMethods, maxMethods))
	above(ports, "methods", ceiling(maxPortMethods, maxPortMethods))
	slices.Sort(problems)
	return problems
}

// methodsIn lists the receivers' types of the methods in a file, one for each method.
func methodsIn(f source) []string {
	parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		return nil // TestPackagesAreThoseOfTheDesign says so
	}
	var out []string
	for _, d := range parsed.Decls {
		if method, is := d.(*ast.FuncDecl); is && method.Recv != nil {
			out = append(out, receiver(method.Recv.List[0].Type))
		}
	}
	return out
}

// portsIn counts the methods of the interfaces in a file, without those that they embed.
func portsIn(f source) map[string]int {
	out := map[string]int{}
	parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		return out
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, is := n.(*ast.TypeSpec)
		if !is {
			return true
		}
		if port, is := spec.Type.(*ast.InterfaceType); is {
			for _, m := range port.Methods.List {
				out[spec.Name.Name] += len(m.Names)
			}
		}
		return true
	})
	return out
}

// decisions are the functions that decide. Packages that do must not call them.
var decisions = []string{"plan.Decide", "plan.AtBoot", "plan.Rollbacks"}

func TestDoNeverCallsDecide(t *testing.T) {
	t.Parallel()
	files, err := goFiles(os.DirFS("."))
	require.NoError(t, err)
	seen := 0
	for _, f := range files {
		does := f.dir() == "agent/apply" || f.dir() == "agent/stage"
		for _, decision := range decisions {
			called := bytes.Contains(f.text, []byte(decision+"("))
			if called && f.dir() == "agent" {
				seen++
			}
			assert.False(t, does && called, "%s calls %s", f.path, decision)
		}
	}
	assert.GreaterOrEqual(t, seen, len(decisions), "the cycle decides")
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return "?"
	}
}

func TestWhatIsAboveACeilingIsNamed(t *testing.T) {
	t.Parallel()
	long := source{"internal/a/a.go", bytes.Repeat([]byte("//\n"), maxPackageLines+1)}
	command := source{"cmd/a/a.go", bytes.Repeat([]byte("//\n"), maxPackageLines+1)}
	test := source{"internal/b/b_test.go", bytes.Repeat([]byte("//\n"), maxPackageLines+1)}
	var many []source
	for n := range maxPackageFiles + 1 {
		many = append(many, source{fmt.Sprintf("internal/c/%d.go", n), nil})
	}
	methods := "package d\n"
	for n := range maxMethods + 1 {
		methods += fmt.Sprintf("func (x *T[V]) m%d() {}\n", n)
	}
	methods += "type P interface {\nio.Reader\na()\nb()\nc()\nd()\n}\n"
	assert.Equal(t, []string{
		"agent/d.P: 4 methods, at most 3", "agent/d.T: 16 methods, at most 15", "internal/a: 2601 lines, at most 2600", "internal/c: 26 files, at most 25",
	}, aboveCeilings(append(many, long, command, test, source{"agent/d/d.go", []byte(methods)})))
}
