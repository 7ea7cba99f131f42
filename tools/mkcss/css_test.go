// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPruneKeepsWhatThePageUses(t *testing.T) {
	t.Parallel()
	const css = `@charset "UTF-8";
/* a comment { } */
:root { --a: var(--b); --b: 1px; --unused: 2px }
.pf-v6-c-button, .pf-v6-c-other { color: var(--a) }
.pf-v6-c-button:not(.pf-m-plain) { --c: 3px; margin: 0 }
.pf-v6-c-button.pf-m-plain { margin: 1px }
.pf-v6-theme-felt .pf-v6-c-button { margin: 2px }
:where(.pf-v6-theme-dark) .pf-v6-c-button { margin: 3px }
@media (min-width: 1px) { .pf-v6-c-button { animation: turn 1s } .pf-v6-c-other { margin: 4px } }
@media (min-width: 2px) { .pf-v6-c-other { margin: 5px } }
@keyframes turn { from { top: 0 } to { top: 1px } }
@keyframes other { from { top: 0 } }
`
	source := `h("div", { class: "pf-v6-c-button" })`
	assert.Equal(t, `:root{--a: var(--b);--b: 1px}
.pf-v6-c-button{color: var(--a)}
.pf-v6-c-button:not(.pf-m-plain){margin: 0}
:where(.pf-v6-theme-dark) .pf-v6-c-button{margin: 3px}
@media (min-width: 1px){
.pf-v6-c-button{animation: turn 1s}
}
@keyframes turn{from { top: 0 } to { top: 1px }}
`, write(prune(parse(css), classesOf(source), source)))
}

// withoutRules are PatternFly's names for parts without rules.
var withoutRules = []string{"pf-v6-c-empty-state__header", "pf-v6-c-tabs__item-text", "pf-m-current"}

// A class that is not in the stylesheet is misspelt, or newer than the stylesheet: run make stylesheet.
func TestTheStylesheetHasEveryClassOfThePage(t *testing.T) {
	t.Parallel()
	source, err := sourceOf("../../cockpit")
	require.NoError(t, err)
	css, err := os.ReadFile("../../cockpit/patternfly.css")
	require.NoError(t, err)
	classes := classesOf(source)
	assert.Greater(t, len(classes), 50)
	for class := range classes {
		isRuled := strings.Contains(string(css), "."+class)
		if strings.HasPrefix(class, "pf-v6-c-") && !slices.Contains(withoutRules, class) {
			assert.True(t, isRuled, class)
		}
	}
}
