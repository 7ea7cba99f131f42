// SPDX-License-Identifier: Apache-2.0

package story

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Diagnosis is doctor's result of one check.
type Diagnosis struct{ Check, Verdict, Detail, Remedy string }

// Diagnose returns doctor's diagnoses by check. If a check has several, it is the first that is not good.
func Diagnose(t *testing.T, n *node.Node, code int) map[string]Diagnosis {
	t.Helper()
	r := n.Agent("doctor", "--output", "json")
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	var all []Diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	checks := map[string]Diagnosis{}
	for _, d := range all {
		assert.Equal(t, d.Verdict == "ok" || d.Verdict == "skipped", d.Remedy == "", "%+v", d)
		if was, ok := checks[d.Check]; !ok || was.Verdict == "ok" {
			checks[d.Check] = d
		}
	}
	return checks
}

// Diagnosed asserts a verdict, and these texts in detail and remedy.
func Diagnosed(t *testing.T, d Diagnosis, verdict string, texts ...string) {
	t.Helper()
	assert.Equal(t, verdict, d.Verdict, "%+v", d)
	for _, text := range texts {
		assert.Contains(t, d.Detail+"\n"+d.Remedy, text)
	}
}
