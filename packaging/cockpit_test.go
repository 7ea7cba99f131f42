// SPDX-License-Identifier: Apache-2.0

package packaging_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// What a hold means and what ends it comes with the status, so that a new hold needs nothing on the page.
func TestThePageKnowsNoHoldByName(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../cockpit/*.js")
	require.NoError(t, err)
	for _, name := range modules {
		for _, hold := range status.HoldNames() {
			assert.NotRegexp(t, `(?:hold|h)\.name [!=]== "`+hold+`"`, text(t, name), name)
			assert.NotRegexp(t, `(?m)^ +"?`+hold+`"?: _\(`, text(t, "../cockpit/model.js"))
		}
	}
}

// The page has its own words for each rule by which a tag is not offered, and for each step of a plan.
func TestThePageKnowsEveryRuleAndStep(t *testing.T) {
	t.Parallel()
	page := text(t, "../cockpit/model.js")
	for file, constant := range map[string]string{
		"../agent/policy/rules.go": "Rule", "../agent/catalog/policy.go": "Rule", "../agent/plan/plan.go": "Step",
	} {
		found := regexp.MustCompile(`(?m)^\t`+constant+`\w+ +(?:\w+ +)?= "([\w ]+)"`).FindAllStringSubmatch(text(t, file), -1)
		assert.NotEmpty(t, found, file)
		for _, name := range found {
			assert.Regexp(t, `\b"?`+name[1]+`"?: (?:_\(|\(\) => )`, page)
		}
	}
}

// TestThePageKnowsEveryPhase: in a phase that the page does not know, it would show no work, and read the status no more.
func TestThePageKnowsEveryPhase(t *testing.T) {
	t.Parallel()
	daemon, page := text(t, "../cockpit/daemon.js"), text(t, "../cockpit/model.js")+text(t, "../cockpit/work.js")
	phases := regexp.MustCompile(`(?m)^\tPhase\w+ += "(\w+)"$`).FindAllStringSubmatch(text(t, "../agent/status/progress.go"), -1)
	for _, phase := range phases {
		if _, works := (status.Progress{Phase: phase[1]}).Activity(); !works {
			continue
		}
		assert.Regexp(t, `(?m)^const is(?:Pull|Work) = .*"`+phase[1]+`"`, daemon)
		assert.Regexp(t, `\b`+phase[1]+`: _\("`, page)
	}
}

// Whatever a registry or a person writes is text on the page: nothing there makes markup or code of a string, nothing is
// loaded from elsewhere, and Cockpit's content security policy stays as it is.
func TestThePageMakesTextOnly(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../cockpit/*.js")
	require.NoError(t, err)
	require.Greater(t, len(modules), 10)
	for _, name := range append(modules, "../cockpit/index.html", "../cockpit/page.css", "../cockpit/patternfly.css") {
		assert.NotRegexp(t, `innerHTML|outerHTML|__html|insertAdjacent|document\.write|\beval\b|\bFunction\(|javascript:|srcdoc|(?:src|href|url\()\s*[=:]?\s*["']?(?:https?:)?//`,
			text(t, name), name)
	}
	assert.NotContains(t, text(t, "../cockpit/manifest.json"), "content-security-policy")
	assert.NotRegexp(t, `<script(?: type="module")?>`, text(t, "../cockpit/index.html"), "scripts are files")
}
