// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

var errLink = errors.New("unsafe: symlink")

func velumWith(old, with string) []byte {
	return []byte(strings.Replace(string(podYAML("velum", "velum="+velum+":4.0.0-rev1")), old, with, 1))
}

// duplicates are files beside velum.yaml of which kubelet makes the same pod, or may make it.
var duplicates = map[string]struct {
	name string
	put  func(w *world, name string)
}{
	"copy":               {"velum.yaml.backup", putText(velumWith("", ""))},
	"older release":      {"velum.yaml.rpmsave", putText(velumWith("rev1", "rev0"))},
	"upper case suffix":  {"a.YAML", putText(velumWith("", ""))},
	"without suffix":     {"velum", putText(velumWith("", ""))},
	"editor's":           {"velum.yaml~", putText(velumWith("", ""))},
	"explicit namespace": {"z.yaml", putText(velumWith("  name: velum", "  name: velum\n  namespace: default"))},
	"other containers":   {"z.yaml", putText(podYAML("velum", "db="+mariadb+":1"))},
	"another uid":        {"z.yaml", putText(velumWith("  name: velum", "  name: velum\n  uid: b1946ac9"))},
	"several documents":  {"z.yaml", putText(append(velumWith("", ""), "---\n[\n"...))},
	"keys twice":         {"z.yaml", putText(velumWith("  name: velum", "  name: db\n  name: velum"))},
	"no containers":      {"z.yaml", putText([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\n"))},
	"merge key":          {"z.yaml", putText([]byte("a: &a {name: velum}\napiVersion: v1\nkind: Pod\nmetadata: {<<: *a}\n"))},
	"byte order mark":    {"z.yaml", putText(append([]byte("\uFEFF"), velumWith("", "")...))},
	"line ends":          {"z.yaml", putText([]byte(strings.ReplaceAll(string(velumWith("", "")), "\n", "\r\n")))},
	"JSON": {"velum.json", putText([]byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"vel\u0075m"},"spec":{"containers":[{"name":"a","image":"r.example\/a:1"}]}}`))},
	"JSON with keys twice": {"z", putText([]byte(
		`{"kind":"Pod","metadata":{"name":"db","name":"velum"}}`))},
	"symlink to it": {"link.yaml", func(w *world, name string) {
		w.Node.PutFollowed(name, errLink, []byte(w.Node.PodManifest("velum.yaml")))
	}},
	"unreadable": {"velum.yaml.bak", func(w *world, name string) { w.Node.PutBroken(name, errors.New("input/output error")) }},
}

func putText(text []byte) func(w *world, name string) {
	return func(w *world, name string) { w.Node.PutPodManifest(name, text) }
}

// kubelet runs one pod of each namespace and name, that of the file that it read last. Until a person has decided,
// nothing is applied, rendered or rolled back there.
func TestPodOfTwoFilesIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range duplicates {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := running(t)
				w.other()
				w.check()
				next := w.Registry.Release(velum, "4.0.0", 2, "2.1")
				before := w.Node.PodManifest("velum.yaml")
				c.put(w, c.name)

				s := w.check()

				held := podOf(s, "velum.yaml").Holds
				require.Len(t, held, 1)
				assert.Equal(t, status.HoldDuplicate, held[0].Name)
				assert.Contains(t, held[0].Reason, "default/velum")
				assert.Contains(t, held[0].Reason, c.name)
				if s.State != status.StateFailed { // the agent cannot parse the second file
					assert.Equal(t, status.StateHeld, s.State, s.Reason)
					assert.Contains(t, s.Reason, c.name)
				}
				for _, do := range []func(...string) ([]status.Outcome, status.Status){w.apply, w.rollback} {
					out, _ := do("velum.yaml")
					require.Len(t, out, 1)
					assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
					assert.Equal(t, status.HoldDuplicate, out[0].Hold)
				}
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev2"))
				w.observe()
				steps, err := w.agent.Boot(t.Context())
				require.NoError(t, err)
				assertKept(t, steps, "velum.yaml")
				assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
				assert.Empty(t, w.record().Overrides)
				assert.Empty(t, w.record().Denied)
				assert.True(t, w.Node.Pinned(velum, first.Digest))

				w.Node.PutPodManifest(c.name, nil)
				w.check()
				out, _ := w.apply("velum.yaml")
				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", next.Digest)
			})
		})
	}
}

func assertKept(t *testing.T, steps []plan.BootStep, file string) {
	t.Helper()
	for _, s := range steps {
		if s.File == file {
			assert.Empty(t, s.Do)
			assert.Contains(t, s.Reason, status.HoldDuplicate)
		}
	}
}

func (w *world) rollback(names ...string) ([]status.Outcome, status.Status) {
	w.t.Helper()
	out, s, err := w.agent.Rollback(w.t.Context(), plan.Named(names...))
	require.NoError(w.t, err)
	return out, s
}

// The directory is read again right before each write: the second file may have come meanwhile.
func TestSecondFileThatComesDuringAnApplyIsNotWrittenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.check()
		before := w.Node.PodManifest("velum.yaml")
		w.Node.OnAside = func(string) error {
			w.Node.PutPodManifest("velum.yaml.backup", []byte(before))
			return nil
		}
		out, s := w.apply("velum.yaml")
		assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
		assert.Equal(t, status.HoldDuplicate, out[0].Hold)
		assert.Equal(t, status.StateHeld, s.State, s.Reason)
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"), "it is put back")
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml.backup"))
		assert.Empty(t, w.record().Denied)
		assert.Empty(t, w.record().Overrides)
	})
}

// What kubelet runs then may be of the other file: the failure is none of the release, and is rolled back nowhere.
func TestSecondFileThatComesDuringAProofEndsNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(1, "9.9") // a rebuild: the container is stopped
		before := w.Node.PodManifest("velum.yaml")
		w.Node.OnStop = func(string) error {
			w.Node.OnStop = nil
			w.Node.PutFollowed("link.yaml", errLink, []byte(before))
			return nil
		}
		out, s := w.apply("velum.yaml")
		assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
		assert.Equal(t, status.HoldDuplicate, podOf(s, "velum.yaml").Holds[0].Name)
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		assert.Empty(t, w.record().Denied)
		assert.Empty(t, w.record().Overrides)
	})
}

// A rollback that was begun waits until there is one file again.
func TestRollbackWaitsForOneFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		before := w.Node.PodManifest("velum.yaml")
		w.Node.OnAside = func(string) error { // of the rollback
			w.Node.OnAside = nil
			w.Node.PutPodManifest("velum.json", []byte(before))
			return nil
		}
		_, s := w.apply("velum.yaml")
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		assert.Equal(t, before, w.Node.PodManifest("velum.json"))
		assert.Contains(t, s.Reason, "velum.json")
		w.observe()
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		require.True(t, w.record().Overrides["velum.yaml"].Pending)

		w.Node.PutPodManifest("velum.json", nil)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
	})
}

// kubelet follows what the agent must not write, and passes over what is no pod: so does the agent.
func TestFilesThatKubeletFollowsOrPassesOver(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.Manage = map[string]bool{"link.yaml": true}
	w.restart()
	w.Registry.Release(mariadb, "10.2.15", 1, "1.1")
	w.Node.PutFollowed("link.yaml", errLink, podYAML("db", "db="+mariadb+":10.2.15-rev1"))
	for _, name := range []string{"old", "gone.yaml"} {
		w.Node.PutFollowed(name, errors.New("unsafe: directory"), nil)
	}
	for name, text := range map[string]string{
		"README": "Keep out.\n", "empty.yaml": "", "list.yaml": "apiVersion: v1\nkind: List\nitems: []\n",
		"config.yaml": "kind: ClusterConfiguration\n", "archive.gz": "\x1f\x8b\x00", "comment.yaml": "# none\n",
	} {
		w.Node.PutPodManifest(name, []byte(text))
	}
	s := w.check()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Len(t, s.PodManifests, 2)
	require.Len(t, podOf(s, "link.yaml").Holds, 1)
	assert.Equal(t, status.HoldUnmanaged, podOf(s, "link.yaml").Holds[0].Name)
	assert.Contains(t, podOf(s, "link.yaml").Holds[0].Reason, "unsafe: symlink")
	assert.NotNil(t, image(s, "link.yaml", "db"))

	w.Registry.Release(mariadb, "10.2.15", 2, "2.1")
	s = w.check()
	assert.NotNil(t, image(s, "link.yaml", "db").Offered)
	out, _ := w.apply("link.yaml")
	assert.Equal(t, status.ResultHeld, out[0].Result)
	p, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err)
	var passed []string
	for _, f := range p.PassedOver {
		passed = append(passed, f.File)
	}
	assert.Equal(t, []string{"README", "archive.gz", "comment.yaml", "config.yaml", "empty.yaml", "gone.yaml", "list.yaml", "old"}, passed)
}
