// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// lineOf are the lines of a status for people that begin so.
func lineOf(t *testing.T, s status.Status, begin string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(pageOf(t, s, 0, time.Unix(0, 0), false)) {
		if text, ok := strings.CutPrefix(line, begin); ok {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}

func TestStatusSaysWhoAnswered(t *testing.T) {
	t.Parallel()
	s := status.Status{Images: []status.ImageStatus{
		{Image: "a", Host: "m1:5000", Mirror: true},
		{Image: "a", Host: "m1:5000", Mirror: true, Container: "second"},
		{Image: "b", Host: "m1:5000", Mirror: true},
		{Image: "c", Host: "registry.suse.com"},
		{Image: "d"},
	}}
	assert.Equal(t, []string{"mirror m1:5000 (2 images), upstream registry.suse.com (1 image)"}, lineOf(t, s, "Answered by:"))
	assert.Empty(t, lineOf(t, status.Status{Images: []status.ImageStatus{{Image: "d"}}}, "Answered by:"))
}

// budgets are what is left of 100 requests, and whether a person is told.
var budgets = map[int]bool{100: false, 10: false, 9: true, 0: true}

func TestStatusShowsABudgetThatIsNearlySpent(t *testing.T) {
	t.Parallel()
	for left, told := range budgets {
		got := lineOf(t, status.Status{Budget: &status.BudgetStatus{PerHour: 100, Remaining: left}}, "Requests:")
		assert.Equal(t, told, len(got) == 1, "%d left: %v", left, got)
	}
	s := status.Status{Budget: &status.BudgetStatus{PerHour: 3600, Remaining: 12}}
	assert.Equal(t, []string{"12 of 3600 left this hour (requestsPerHour)"}, lineOf(t, s, "Requests:"))
}

func TestStatusHasEachNoteOnce(t *testing.T) {
	t.Parallel()
	both := []string{"x is newer by name than y", "its label says\x07 z"}
	s := status.Status{Images: []status.ImageStatus{
		{PodManifest: "a.yaml", Notes: both, Error: "away"},
		{PodManifest: "a.yaml", Container: "second", Notes: both[:1]},
		{PodManifest: "b.yaml", Notes: both[:1]},
	}}
	assert.Equal(t, []string{"away", both[0], "its label says� z"}, lineOf(t, s, "  a.yaml:"))
	assert.Equal(t, []string{both[0]}, lineOf(t, s, "  b.yaml:"))
}

// kolkata is half an hour beside the zones that a mistake would give.
func kolkata() *time.Location { return time.FixedZone("IST", 5*3600+1800) }

// aTime begins as every time does that a text of ours may have.
var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\d(.\d\d:\d\d.{0,7})?`)

func assertOneZone(t *testing.T, text, name string) {
	t.Helper()
	for _, at := range aTime.FindAllString(text, -1) {
		assert.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST$`, at, name)
	}
}

func TestEveryPageHasItsTimesInOneZone(t *testing.T) {
	t.Parallel()
	for name, s := range pages() {
		assertOneZone(t, pageOf(t, s, 0, noon.In(kolkata()), false), name)
	}
	s := pages()["held"]
	s.PodManifests[1].Holds[0] = status.Hold{Name: status.HoldRefused, Reason: "x"}
	s.Reasons[1].Hold = status.HoldRefused
	s.Images[1].Notes = []string{"staging begins at 2026-11-21T13:00:00Z"}
	s.Images[1].Error = "x509: certificate has expired: current time 2026-11-21T11:00:00Z is after 2026-11-20T23:59:59Z"
	text := pageOf(t, s, 0, noon.In(kolkata()), false)
	assertOneZone(t, text, "notes")
	assert.Contains(t, text, "no changes before the holidays, until 2027-01-07 05:30:00 IST\n")
	assert.Contains(t, text, "staging begins at 2026-11-21 18:30:00 IST\n")
	assert.Contains(t, text, "is after 2026-11-21 05:29:59 IST\n", "others' words, too")
}
