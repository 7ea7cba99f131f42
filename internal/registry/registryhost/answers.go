// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

// AnswersDir is the runtime directory of the local registry, with the journal of its answers.
const AnswersDir = "/run/image-update-agent-local-registry"

// Answers counts the local registry's answers since the boot, or since its journal was shortened at 64 KiB.
type Answers struct {
	Served, Unknown, Refused int
	// Last is when a tag was last served, by REGISTRY/REPOSITORY:TAG. A request by digest counts for a tag with that
	// digest.
	Last map[string]time.Time
}

// AnswersAt reads the journal at path whenever it changes. A missing journal is not an error. The local registry runs
// as another user, so its data is shown but decides nothing.
func AnswersAt(path string) *nodefile.Cached[Answers] {
	return &nodefile.Cached[Answers]{Path: path, Limit: 2 * answer.MaxJournal, AnyOwner: true, Parse: parseAnswers}
}

// parseAnswers skips invalid lines.
func parseAnswers(data []byte) (Answers, error) {
	a := Answers{Last: map[string]time.Time{}}
	for line := range strings.Lines(string(data)) {
		seconds, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		result, image, _ := strings.Cut(rest, " ")
		unix, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || outside.Text(image) != image {
			continue
		}
		switch answer.Result(result) {
		case answer.Served:
			a.Served++
			if _, ok := a.Last[image]; ok || len(a.Last) < table.MaxEntries {
				a.Last[image] = outside.Time(time.Unix(unix, 0))
			}
		case answer.Unknown:
			a.Unknown++
		case answer.Refused:
			a.Refused++
		}
	}
	return a, nil
}
