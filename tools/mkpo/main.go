// SPDX-License-Identifier: Apache-2.0

// Command mkpo generates the translations of the Cockpit page.
//
//	mkpo messages PAGE       prints a template: every text of the page and of holds, without a translation
//	mkpo js PAGE/po/LANG.po  prints the translations as Cockpit loads them: PAGE/po.LANG.js
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkpo messages PAGE | js FILE.po")
		os.Exit(2)
	}
	text, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkpo: %v\n", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		os.Exit(1)
	}
}

func run(verb, name string) (string, error) {
	switch verb {
	case "messages":
		messages, err := messagesOf(name)
		return template(append(messages, daemonTexts()...)), err
	case "js":
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		entries, err := parse(string(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return script(strings.TrimSuffix(filepath.Base(name), ".po"), entries), nil
	default:
		return "", fmt.Errorf("%s: no such verb", verb)
	}
}
