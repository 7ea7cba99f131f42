// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
)

var (
	// The parts of a help text, as cobra writes them.
	helpPart = regexp.MustCompile(`(?m)^(Usage|Examples|[A-Z][a-z]+ Commands|Tools|Flags|Global Flags):\n`)
	helpVerb = regexp.MustCompile(`(?m)^  (\S+)`)
	helpFlag = regexp.MustCompile(`(?m)^ +((?:-\w, )?--[a-z-]+)(?: (\w+))? {2,}(.+)$`)
)

// Verbs describes each verb below path, with usage, text, flags and examples. help returns the output of `help PATH`.
func Verbs(help func(path ...string) (string, error), path ...string) (string, error) {
	text, err := help(path...)
	if err != nil {
		return "", err
	}
	parts := partsOf(text)
	var out strings.Builder
	if len(path) > 0 {
		out.WriteString(verb(parts))
	}
	if len(path) > 0 && path[0] == "completion" {
		return out.String(), nil // cobra's texts about each shell are for users without a package
	}
	var names strings.Builder
	for _, title := range helpPart.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(title[1], " Commands") || title[1] == "Tools" {
			names.WriteString(parts[title[1]] + "\n")
		}
	}
	for _, found := range helpVerb.FindAllStringSubmatch(names.String(), -1) {
		if found[1] == "help" {
			continue
		}
		below, err := Verbs(help, append(slices.Clip(path), found[1])...)
		if err != nil {
			return "", err
		}
		out.WriteString(below)
	}
	if out.Len() == 0 {
		return "", fmt.Errorf("help %s: names no verbs", strings.Join(path, " "))
	}
	return out.String(), nil
}

// partsOf splits a help text; its beginning is the part "".
func partsOf(help string) map[string]string {
	parts := map[string]string{}
	title := ""
	for {
		at := helpPart.FindStringSubmatchIndex(help)
		if at == nil {
			parts[title], _, _ = strings.Cut(help, "\nUse \"")
			return parts
		}
		parts[title] = help[:at[0]]
		title, help = help[at[2]:at[3]], help[at[1]:]
	}
}

func verb(parts map[string]string) string {
	usage, _, _ := strings.Cut(strings.TrimSpace(parts["Usage"]), "\n")
	_, usage, _ = strings.Cut(strings.TrimSuffix(usage, " [flags]"), " ") // without the program
	text := strings.TrimSpace(parts[""])
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	var out strings.Builder
	out.WriteString("### " + prose(usage) + "\n\n" + paragraphs(text, ""))
	for _, flag := range helpFlag.FindAllStringSubmatch(parts["Flags"], -1) {
		if flag[1] == "-h, --help" {
			continue
		}
		term := "`" + flag[1] + "`"
		if flag[2] != "" {
			term += " *" + flag[2] + "*"
		}
		out.WriteString(term + "\n:   " + prose(flag[3]) + "\n\n")
	}
	if examples := parts["Examples"]; examples != "" {
		out.WriteString("Examples:\n\n" + example(examples, ""))
	}
	return out.String()
}

var (
	// "#key: value", and "#  key: value" below a "#key:", and so on.
	settingLine = regexp.MustCompile(`^#((?:  )*)([a-z][A-Za-z]*):(?: (.+))?$`)
	elementLine = regexp.MustCompile(`^#  (- .+)$`)
)

// Settings describes each setting of the shipped configuration: its key from the root (disk.reserve) with its default,
// and the comment above it. A comment followed by an empty line is for readers of the file, and left out.
func Settings(config string) (string, error) {
	var s settings
	for i, line := range strings.Split(strings.TrimRight(config, "\n"), "\n") {
		if err := s.add(line); err != nil {
			return "", fmt.Errorf("settings: line %d: %w", i+1, err)
		}
	}
	s.flush()
	if s.out.Len() == 0 {
		return "", fmt.Errorf("settings: there are none")
	}
	return s.out.String(), nil
}

// settings is the state of reading a configuration.
type settings struct {
	out     strings.Builder
	comment []string // since the last setting or empty line
	groups  []string // the keys without value that nested keys belong to

	// The current setting: it may still get elements, or nested keys.
	term, text string
	elements   []string
}

func (s *settings) add(line string) error {
	switch m := settingLine.FindStringSubmatch(line); {
	case line == "":
		s.comment = nil
	case elementLine.MatchString(line):
		if s.term == "" || len(s.comment) > 0 {
			return fmt.Errorf("%q: an element of nothing", line)
		}
		s.elements = append(s.elements, elementLine.FindStringSubmatch(line)[1])
	case m != nil:
		return s.setting(len(m[1])/2, m[2], m[3])
	case line == "#":
		s.comment = append(s.comment, "")
	case strings.HasPrefix(line, "# "):
		s.comment = append(s.comment, line[2:])
	default:
		return fmt.Errorf("%q: neither a comment nor a setting", line)
	}
	return nil
}

func (s *settings) setting(depth int, key, value string) error {
	s.flush()
	switch {
	case len(s.comment) == 0:
		return fmt.Errorf("%s: no comment says what it is", key)
	case depth > len(s.groups):
		return fmt.Errorf("%s: below no other key", key)
	}
	path := append(s.groups[:depth:depth], key)
	s.groups, key = path[:depth], strings.Join(path, ".")
	if value == "" {
		s.groups = path
	}
	s.term = "`" + strings.TrimSuffix(key+": "+value, ": ") + "`"
	s.text = strings.Join(s.comment, "\n")
	s.comment = nil
	return nil
}

// flush writes the last setting.
func (s *settings) flush() {
	if s.term == "" {
		return
	}
	text := s.text
	if len(s.elements) > 0 {
		text += "\n\n  " + strings.Join(s.elements, "\n  ")
	}
	meaning := strings.TrimSpace(paragraphs(text, "    "))
	s.out.WriteString(s.term + "\n:   " + meaning + "\n\n")
	s.term, s.text, s.elements = "", "", nil
}

// sample has a value in each field that a remedy may use.
var sample = status.Hold{Image: "IMAGE", Grain: "GRAIN"}

// marks enclose a generated table of a page: both contain its name.
var marks = regexp.MustCompile(`(?s)(<!-- ([a-z ]+), by make tables -->\n).*?(<!-- end of ([a-z ]+) -->\n)`)

// WithTables returns a page of Markdown with its generated tables as the code has them now. metrics is the output of
// /metrics, in Prometheus' text format. It is an error if the page has no table, or a table has an unknown name.
func WithTables(page, metrics string) (string, error) {
	tables := map[string]func() string{
		"states":             stateTable,
		"list of states":     stateList,
		"holds":              func() string { return holdList(false) },
		"holds of mode auto": func() string { return holdList(true) },
		"metrics":            func() string { return metricList(metrics) },
	}
	if !marks.MatchString(page) {
		return "", fmt.Errorf("want <!-- NAME, by make tables --> and <!-- end of NAME -->")
	}
	var failed error
	out := marks.ReplaceAllStringFunc(page, func(old string) string {
		m := marks.FindStringSubmatch(old)
		table, known := tables[m[2]]
		if !known || m[4] != m[2] {
			failed = fmt.Errorf("<!-- %s, by make tables -->: no such table, or another one ends", m[2])
			return old
		}
		return m[1] + table() + m[3]
	})
	return out, failed
}

// stateTable returns the table of states for a page that GitHub shows.
func stateTable() string {
	var out strings.Builder
	out.WriteString("| state | meaning | what to do |\n|---|---|---|\n")
	for _, kind := range status.StateKinds() {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", kind.State, kind.Meaning, kind.Remedy)
	}
	return out.String()
}

// stateList returns the list of states for a manual page.
func stateList() string {
	var out strings.Builder
	for _, kind := range status.StateKinds() {
		fmt.Fprintf(&out, "\n`%s`\n:   %s\n", kind.State, kind.Meaning)
	}
	return out.String() + "\n"
}

// holdList returns the list of the holds that block every apply, or of those that block automatic applies only.
func holdList(onlyAuto bool) string {
	var out strings.Builder
	for _, kind := range status.HoldKinds() {
		if kind.OnlyAuto != onlyAuto {
			continue
		}
		also := ""
		if kind.HoldsRollbacks() {
			also = "; also holds `rollback`"
		}
		fmt.Fprintf(&out, "\n`%s`\n:   %s%s. Remedy: %s\n", kind.Name, kind.Meaning, also, kind.Remedy(sample))
	}
	return out.String() + "\n"
}

var (
	helpLine = regexp.MustCompile(`(?m)^# HELP (\w+) (.+)\n# TYPE \w+ (\w+)\n(.*)$`)
	labelOf  = regexp.MustCompile(`(\w+)="`)
)

// metricList returns the list of metrics with their labels, from the output of /metrics.
func metricList(metrics string) string {
	var out strings.Builder
	for _, m := range helpLine.FindAllStringSubmatch(metrics, -1) {
		name, help, kind := m[1], m[2], m[3]
		for _, label := range labelOf.FindAllStringSubmatch(m[4], -1) {
			if label[1] != "le" {
				kind += ", " + label[1]
			}
		}
		fmt.Fprintf(&out, "\n`%s` (%s)\n:   %s\n", name, kind, help)
	}
	return out.String() + "\n"
}
