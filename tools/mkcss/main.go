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

// rule is a rule with its declarations, or an at-rule with its rules. A raw rule is kept unchanged.
type rule struct {
	head  string
	body  []string // declarations
	rules []rule
	isAt  bool
	isRaw bool
}

var (
	comment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	charset = regexp.MustCompile(`@charset[^;]*;`)
	space   = regexp.MustCompile(`\s+`)
)

// parse parses CSS as PatternFly writes it: nesting only in at-rules, and no braces in strings.
func parse(text string) []rule {
	text = charset.ReplaceAllString(comment.ReplaceAllString(text, ""), "")
	var rules []rule
	for {
		head, rest, found := strings.Cut(text, "{")
		if !found {
			return rules
		}
		depth, end := 1, 0
		for ; depth > 0 && end < len(rest); end++ {
			switch rest[end] {
			case '{':
				depth++
			case '}':
				depth--
			}
		}
		r := rule{head: space.ReplaceAllString(strings.TrimSpace(head), " ")}
		body := rest[:max(0, end-1)]
		switch {
		case strings.HasPrefix(r.head, "@keyframes"):
			r.isRaw, r.body = true, []string{space.ReplaceAllString(strings.TrimSpace(body), " ")}
		case strings.HasPrefix(r.head, "@"):
			r.isAt, r.rules = true, parse(body)
		default:
			for declaration := range strings.SplitSeq(body, ";") {
				if d := space.ReplaceAllString(strings.TrimSpace(declaration), " "); d != "" {
					r.body = append(r.body, d)
				}
			}
		}
		rules = append(rules, r)
		text = rest[end:]
	}
}

// prune keeps the rules whose classes are used, and their used variables.
func prune(rules []rule, classes map[string]bool, source string) []rule {
	rules = selected(rules, classes)
	needed := neededVariables(rules, source)
	var declared strings.Builder
	each(rules, func(r *rule) {
		kept := r.body[:0:0]
		for _, d := range r.body {
			if name, _, _ := strings.Cut(d, ":"); !strings.HasPrefix(d, "--") || needed[strings.TrimSpace(name)] {
				kept = append(kept, d)
				declared.WriteString(d + ";")
			}
		}
		r.body = kept
	})
	return animated(rules, declared.String())
}

// selected drops selectors that the page cannot match, and themes that Cockpit does not have.
func selected(rules []rule, classes map[string]bool) []rule {
	var out []rule
	for _, r := range rules {
		switch {
		case r.isRaw:
			out = append(out, r)
		case r.isAt:
			if r.rules = selected(r.rules, classes); len(r.rules) > 0 {
				out = append(out, r)
			}
		default:
			var kept []string
			for _, selector := range selectors(r.head) {
				if isUsed(selector, classes) {
					kept = append(kept, selector)
				}
			}
			if r.head = strings.Join(kept, ","); r.head != "" {
				out = append(out, r)
			}
		}
	}
	return out
}

// selectors splits a list of selectors at its outer commas.
func selectors(head string) []string {
	var out []string
	depth, begin := 0, 0
	for n, c := range head {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(head[begin:n]))
				begin = n + 1
			}
		}
	}
	return append(out, strings.TrimSpace(head[begin:]))
}

var (
	negation     = regexp.MustCompile(`:not\([^)]*\)`)
	className    = regexp.MustCompile(`\.(pf-[\w-]+)`)
	otherThemes  = regexp.MustCompile(`felt|glass|high-contrast`)
	ownDirection = regexp.MustCompile(`theme-dark|dir-rtl|dir-ltr`)
)

func isUsed(selector string, classes map[string]bool) bool {
	if otherThemes.MatchString(selector) {
		return false
	}
	for _, class := range className.FindAllStringSubmatch(negation.ReplaceAllString(selector, ""), -1) {
		if !classes[class[1]] && !ownDirection.MatchString(class[1]) {
			return false
		}
	}
	return true
}

// each calls f with every rule that has declarations.
func each(rules []rule, f func(*rule)) {
	for n := range rules {
		switch r := &rules[n]; {
		case r.isAt:
			each(r.rules, f)
		case !r.isRaw:
			f(r)
		}
	}
}

var use = regexp.MustCompile(`var\(\s*(--[\w-]+)`)

// neededVariables returns the variables used by declarations or the page, and by their values.
func neededVariables(rules []rule, source string) map[string]bool {
	needed, values := map[string]bool{}, map[string]string{}
	var open []string
	want := func(text string) {
		for _, found := range use.FindAllStringSubmatch(text, -1) {
			if !needed[found[1]] {
				needed[found[1]] = true
				open = append(open, found[1])
			}
		}
	}
	want(source)
	each(rules, func(r *rule) {
		for _, d := range r.body {
			if name, value, _ := strings.Cut(d, ":"); strings.HasPrefix(d, "--") {
				values[strings.TrimSpace(name)] += " " + value
			} else {
				want(d)
			}
		}
	})
	for len(open) > 0 {
		name := open[len(open)-1]
		open = open[:len(open)-1]
		want(values[name])
	}
	return needed
}

// animated drops keyframes that no declaration names.
func animated(rules []rule, declared string) []rule {
	var out []rule
	for _, r := range rules {
		if r.isAt {
			r.rules = animated(r.rules, declared)
		}
		if _, name, _ := strings.Cut(r.head, " "); !r.isRaw || strings.Contains(declared, name) {
			out = append(out, r)
		}
	}
	return out
}

// write prints rules, one per line, without rules that have no declarations.
func write(rules []rule) string {
	var text strings.Builder
	for _, r := range rules {
		body := strings.Join(r.body, ";")
		if r.isAt {
			if body = write(r.rules); body != "" {
				body = "\n" + body
			}
		}
		if body != "" {
			text.WriteString(r.head + "{" + body + "}\n")
		}
	}
	return text.String()
}
