// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

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
