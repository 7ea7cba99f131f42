// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/api"
)

// state is the daemon's status, in both forms.
type state struct {
	status.Status
	text string
}

func (s *stage) state() (state, error) {
	status, err := api.NewClient(s.node.Path("run/image-update-agent/agent.sock")).Status(s.Context())
	if err != nil {
		return state{}, err
	}
	text, err := json.MarshalIndent(status, "", " ")
	return state{status, string(text)}, err
}

func (s *stage) status(not bool, args []string) {
	want, err := regexp.Compile("^(?s:" + args[1] + ")$")
	s.line.Check(err)
	s.until(args[0], func() error {
		now, err := s.state()
		if err != nil {
			return err
		}
		var all any
		if err := json.Unmarshal([]byte(now.text), &all); err != nil {
			return err
		}
		found := words(all, args[0])
		if slices.ContainsFunc(found, want.MatchString) == not {
			return fmt.Errorf("%q, want %s: %t", found, args[1], !not)
		}
		return nil
	})
}

// words returns the values at a path: images[velum].running.tag. In a list, [NAME] selects the elements with NAME or
// NAME.yaml in one of their fields, and a plain name applies to each.
func words(value any, path string) []string {
	if list, ok := value.([]any); ok {
		pick, rest := "", path
		if strings.HasPrefix(path, "[") {
			pick, rest, _ = strings.Cut(path[1:], "]")
			rest = strings.TrimPrefix(rest, ".")
		}
		var found []string
		for _, element := range list {
			if pick == "" || has(element, pick) {
				found = append(found, words(element, rest)...)
			}
		}
		return found
	}
	if fields, ok := value.(map[string]any); ok && path != "" {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		return words(fields[path[:end]], strings.TrimPrefix(path[end:], "."))
	}
	if text, ok := value.(string); ok {
		return []string{text}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return []string{string(text)}
}

func has(element any, name string) bool {
	fields, _ := element.(map[string]any)
	for _, value := range fields {
		if value == name || value == name+".yaml" {
			return true
		}
	}
	return false
}

func (s *stage) grain(not bool, args []string) {
	line := regexp.MustCompile("(?m)^" + args[0] + `: "?(?:` + args[1] + `)"?$`)
	s.until("grain "+args[0], func() error {
		text, err := os.ReadFile(s.node.Path(story.GrainFile))
		if err == nil && line.Match(text) == not {
			err = fmt.Errorf("not in\n%s", text)
		}
		return err
	})
}
