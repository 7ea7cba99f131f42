// SPDX-License-Identifier: Apache-2.0

// Command mkcss prints the part of PatternFly's stylesheet that a page uses: mkcss PATTERNFLY PAGE, where PATTERNFLY is
// the unpacked package @patternfly/patternfly of npm, and PAGE a directory of modules, HTML and page.css. It keeps the
// rules whose classes the page uses, and the variables of these rules.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkcss PATTERNFLY PAGE")
		os.Exit(2)
	}
	text, err := stylesheet(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkcss: %v\n", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		os.Exit(1)
	}
}

// bases are the PatternFly files that every page needs, before those of its components.
var bases = []string{"base/patternfly-variables.css", "base/patternfly-common.css"}

func stylesheet(patternfly, page string) (string, error) {
	source, err := sourceOf(page)
	if err != nil {
		return "", err
	}
	classes := classesOf(source)
	files := bases
	components, err := componentFiles(patternfly, classes)
	if err != nil {
		return "", err
	}
	var rules []rule
	for _, file := range slices.Concat(files, components) {
		text, err := os.ReadFile(filepath.Join(patternfly, file))
		if err != nil {
			return "", err
		}
		rules = append(rules, parse(string(text))...)
	}
	var about struct{ Version string }
	data, err := os.ReadFile(filepath.Join(patternfly, "package.json"))
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil {
		return "", fmt.Errorf("package.json: %w", err)
	}
	head := fmt.Sprintf("/* SPDX-License-Identifier: MIT */\n"+
		"/* PatternFly %s, https://www.patternfly.org: what this page uses of it. Made by make stylesheet. */\n",
		about.Version)
	return head + write(prune(rules, classes, source)), nil
}

// sourceOf returns the text of all files of a page that name classes or variables.
func sourceOf(page string) (string, error) {
	var text strings.Builder
	for _, pattern := range []string{"*.js", "*.html", "page.css"} {
		names, err := filepath.Glob(filepath.Join(page, pattern))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			text.Write(data)
		}
	}
	return text.String(), nil
}

// computed are the modifiers that the page derives from a kind or a color.
var computed = []string{
	"primary", "secondary", "link", "danger", "warning", "success", "info", "blue", "teal", "green", "orange", "red",
}

func classesOf(source string) map[string]bool {
	classes := map[string]bool{}
	for _, class := range regexp.MustCompile(`\bpf-(?:v6|m)-[\w-]+`).FindAllString(source, -1) {
		classes[class] = true
	}
	for _, word := range computed {
		classes["pf-m-"+word] = true
	}
	return classes
}

// componentFiles returns the stylesheets of the components whose classes are used, sorted.
func componentFiles(patternfly string, classes map[string]bool) ([]string, error) {
	dirs, err := os.ReadDir(filepath.Join(patternfly, "components"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, dir := range dirs {
		name := strings.TrimPrefix(regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(dir.Name(), func(c string) string {
			return "-" + strings.ToLower(c)
		}), "-")
		used := func(file, class string) {
			if path := filepath.Join("components", dir.Name(), file); classes[class] {
				if _, err := os.Stat(filepath.Join(patternfly, path)); err == nil {
					files = append(files, path)
				}
			}
		}
		used(name+".css", "pf-v6-c-"+name)
		if name == "table" {
			used("table-grid.css", "pf-v6-c-table")
		}
	}
	return files, nil
}
