// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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
