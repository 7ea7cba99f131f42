// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestRegistryAwayAndBack(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	since := w.Clock.Now()
	w.Clock.Add(12 * time.Hour)
	w.Registry.Down(agenttest.ErrRefused)

	s := w.poll()

	assert.Equal(t, status.StateStale, s.State, s.Reason)
	assert.Contains(t, s.Reason, "registry.test")
	assert.Contains(t, s.Reason, "connection refused")
	assert.Contains(t, s.Reason, since.Format(time.RFC3339))
	assert.Equal(t, 1, s.Sources[0].Failures)
	assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").Offered.Digest, "no offer is taken back")
	assert.NotEmpty(t, w.Grain.Last().Updates)
	assert.Equal(t, status.StateStale, w.observe().State, "looking does not heal it")
	w.restart()
	assert.Equal(t, status.StateStale, w.observe().State, "nor does a restart")

	w.Registry.Down(nil)
	s = w.poll()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Zero(t, s.Sources[0].Failures)
}

func TestUnreachableRegistryIsReportedUntilItAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Down(agenttest.ErrRefused)
	for _, s := range []status.Status{w.poll(), w.observe()} {
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "connection refused")
	}
}

func TestMissingFollowedTagIsAPersistentAlarm(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Registry.Retract(velum, "4.0.0-rev1")

	s := w.poll()

	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "the registry no longer has the followed tag")
	assert.Equal(t, "unresolved", podOf(s, "velum.yaml").Holds[0].Name)
	assert.Zero(t, s.Sources[0].Failures, "the source did answer")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.Equal(t, status.StateFailed, w.observe().State, "until the next answer")
	w.restart()
	assert.Equal(t, status.StateFailed, w.observe().State, "also over a restart")
	w.Registry.Down(agenttest.ErrRefused)
	assert.Equal(t, status.StateFailed, w.poll().State, "no answer is not a better answer")
	assert.True(t, w.Node.Pinned(velum, first.Digest))

	w.Registry.Down(nil)
	w.Registry.Tag(velum, "4.0.0-rev1", first.Digest)
	assert.Equal(t, status.StateCurrent, w.poll().State)
}

func refuses(status int, retryAt time.Time) error {
	return &release.SourceError{
		Repository: velum, Host: agenttest.Host, Status: status, RetryAt: retryAt, Err: errors.New("refused"),
	}
}

func TestFailedSourceIsRetriedAfterItsBackoffAndNotBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wish time.Duration // Retry-After of the host
		want time.Duration
	}{
		"at its own time":                   {0, 5 * time.Minute},
		"after the host's wish, spread":     {time.Hour, 2 * time.Hour},
		"a wish that is past is none":       {-time.Hour, 5 * time.Minute},
		"a wish of a second is no hurry":    {time.Second, 5 * time.Minute},
		"ten years were said by a mad host": {10 * 365 * 24 * time.Hour, 0},
	} {
		parallel(t, name, func(t *testing.T) {
			w, _ := running(t)
			w.agent.Jitter = func() float64 { return 0.5 }
			w.Registry.Down(refuses(503, w.Clock.Now().Add(c.wish)))
			s := w.poll()
			assert.Equal(t, status.StateStale, s.State)
			require.NotNil(t, s.Sources[0].RetryAt)
			w.Registry.Counts()
			if c.want > 0 {
				assert.Equal(t, w.Clock.Now().Add(c.want), *s.Sources[0].RetryAt)
				w.Clock.Add(c.want - time.Second)
				w.cycle(source.PollFailed)
				assert.Zero(t, w.Registry.Counts(), "a second too early")
				w.restart()
				w.cycle(source.PollFailed)
				assert.Zero(t, w.Registry.Counts(), "and after a restart")
				w.Clock.Add(time.Second)
			}
			w.Registry.Down(nil)
			s = w.cycle(source.PollFailed)
			assert.Equal(t, 1, w.Registry.Counts().Heads)
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			assert.Nil(t, s.Sources[0].RetryAt)
			w.cycle(source.PollFailed)
			assert.Zero(t, w.Registry.Counts(), "what answered is not retried")
		})
	}
}

type pacer struct {
	pace  record.Pace
	tries int
}

func (p *pacer) Pace() record.Pace    { return p.pace }
func (p *pacer) Resume(x record.Pace) { p.pace = x }
func (p *pacer) TryAgain()            { p.tries++ }

func TestLoopRetriesWhatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		pass(10 * time.Minute)
		slot := *l.Status().NextCheck
		pass(slot.Sub(l.now()) - time.Second)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(2 * time.Second)
		first := *l.Status().NextCheck
		assert.WithinDuration(t, l.now().Add(5*time.Minute), first, 151*time.Second)
		l.Registry.Counts()
		pass(first.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
		pass(2 * time.Second)
		assert.Equal(t, 1, l.Registry.Counts().Heads)
		assert.Equal(t, 2, l.Status().Sources[0].Failures)
		l.Registry.Down(nil)
		pass(l.Status().NextCheck.Sub(l.now()) + time.Second)
		assert.Equal(t, 1, l.Registry.Counts().Heads)
		assert.Equal(t, status.StateCurrent, l.Status().State)
		assert.Equal(t, slot.Add(12*time.Hour), *l.Status().NextCheck, "and in its slot again")
	})
}

func TestLoopRetriesNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		pass(10 * time.Minute)
		l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
		l.checks()
		asked := 0
		l.Registry.OnAsk = func(_, name string) {
			l.Registry.Down(nil)
			if strings.HasPrefix(name, velum) {
				l.Registry.Down(refuses(503, time.Time{}))
			} else {
				asked++
			}
		}
		l.checks()
		asked = 0
		pass(l.Status().NextCheck.Sub(l.now()) + time.Second)
		assert.Zero(t, asked)
	})
}

// An outage of days costs the registry a few requests a day, and its end causes no burst: after some failures only the
// slot polls.
func TestLoopBacksOffFromARegistryThatIsAwayForDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		pass(10 * time.Minute)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(3 * 24 * time.Hour)
		l.Registry.Counts()
		pass(24 * time.Hour)
		assert.LessOrEqual(t, l.Registry.Counts().Heads, 2)
		l.Registry.Down(nil)
		pass(12 * time.Hour)
		assert.Equal(t, status.StateCurrent, l.Status().State)
	})
}

func TestLoopDoesNotSpinAfterFailedObservations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		pass(10 * time.Minute)
		pass(l.Status().NextCheck.Sub(l.now()) - time.Second)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(2 * time.Second)
		l.Node.Blind(assert.AnError)
		pass(time.Hour) // a loop that spins never gets here
		l.Node.Blind(nil)
		l.Registry.Down(nil)
		pass(24 * time.Hour)
		assert.Equal(t, status.StateCurrent, l.Status().State)
	})
}

// After an apply, the pod manifest follows the tag of the applied release. The last answer has the release, even if the
// rules did not allow it then.
func TestRetriedReleaseOfAnotherTagIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		next := w.publish(2, "1.1")
		w.Node.Crash(next.Digest, true)
		w.apply()
		w.check() // a denied release is refused
		w.Node.Crash(next.Digest, false)

		_, s := w.retry()

		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", next.Digest)
		assert.Equal(t, "4.0.0-rev2", image(s, "velum.yaml", "velum").Follow)
	})
}

func TestFollowedAndNewestTagAreBothReadTwiceAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		next := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		var again []string
		w.meanwhile(func(int) { w.Registry.OnAsk = func(_, name string) { again = append(again, name) } })
		w.check()
		assert.Equal(t, []string{velum + ":4.0.0-rev1", velum + ":4.0.0-rev2"}, again)
		began := time.Now()
		w.poll()
		assert.Zero(t, time.Since(began))
		w.Registry.Tag(velum, "4.0.0-rev3", next.Digest)
		w.check()
		assert.Equal(t, 30*time.Second, time.Since(began), "what another tag names is new")
	})
}

func TestUnstableTagAffectsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		other := w.Registry.Release(mariadb, "4.0.0", 1, "1.1")
		foreign := w.Registry.Release(etcd, "4.0.0", 1, "1.1")
		w.Registry.OtherPlatform(foreign.Digest)
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":4.0.0-rev1"))
		w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":4.0.0-rev1"))
		w.meanwhile(func(n int) { w.Registry.Release(velum, "4.0.0", 1, fmt.Sprintf("2.%d", n)) })
		asked := map[string]int{}
		w.Registry.OnAsk = func(what, name string) { asked[what+" "+name]++ }
		s := w.poll()
		require.NotNil(t, image(s, "db.yaml", "db").Running, s.Reason)
		assert.Equal(t, other.Digest, image(s, "db.yaml", "db").Running.Digest)
		assert.Equal(t, 1, asked["resolve "+etcd+":4.0.0-rev1"], "what is not offered is not read again")
		assert.Equal(t, 1, asked["describe "+foreign.Digest.String()])
		assert.Equal(t, etcd, s.Sources[0].Repository)
		assert.Zero(t, s.Sources[0].Failures, "it did answer")
	})
}

// confirming returns an up-to-date node with velum that reads new digests twice.
func confirming(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Policy.ConfirmAfter = 30 * time.Second
	w.restart()
	return w, first
}

// meanwhile calls do after each pause; n counts the pauses from 1.
func (w *world) meanwhile(do func(n int)) {
	n := 0
	var said time.Duration
	w.agent.Progress = func(p status.Progress) {
		if p.Phase != "confirming" {
			return
		}
		if said += 10 * time.Second; said%w.Policy.ConfirmAfter == 0 {
			n++
			do(n)
		}
	}
}

func TestAllQuestionsOfARepositoryAreAnsweredFromOneList(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(velum, "4.0.0", 2, "1.1")
	// The placeholder alone could use yesterday's list; the short tag needs today's.
	w.Node.PutTemplate("two.yaml", podYAML("two", "a="+velum+":__TAG__", "b="+velum+":4.0.0"))

	w.poll()

	assert.Equal(t, string(rendered("two", "a="+velum+":4.0.0-rev2", "b="+velum+":4.0.0-rev2")), w.Node.PodManifest("two.yaml"))
	assert.Contains(t, w.Node.WaitingFile("velum.yaml"), "4.0.0-rev2")
	assert.Equal(t, agenttest.Counts{Heads: 4, Lists: 1, Describes: 1}, w.Registry.Counts())
}

// An unsaved record is reported: holds, approvals and waits would be lost at the next start.
func TestUnsavedRecordIsAnAlarm(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Disk.Fail(errors.New("no space left on device"))
	s, err := w.agent.Cycle(t.Context(), source.PollDue)
	require.Error(t, err)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "record: no space left on device")
	w.Disk.Fail(nil)
	assert.Equal(t, status.StateCurrent, w.observe().State)
}

// A request does not wait for a pull, and a pod whose image is not pulled yet is not written.
func TestNewPodIsNotWrittenBeforeItsDeferredImage(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Node.Lose(first.Digest)
	w.Node.PutTemplate("new.yaml", podYAML("new", "velum="+velum+":4.0.0-rev1"))
	w.resume()
	assert.Empty(t, w.Node.PodManifest("new.yaml"))
	w.observe()
	assert.NotEmpty(t, w.Node.PodManifest("new.yaml"))
}

func TestTemplateAndConfigurationMayNameTheSameShortTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	w.check()
	want := w.Node.WaitingFile("velum.yaml")
	require.Contains(t, want, "4.0.0-rev1")
	for range 3 {
		w.poll()
		assert.Equal(t, want, w.Node.WaitingFile("velum.yaml"))
	}
}

func TestOldRefusalDoesNotApplyToANewPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Retract(velum, "4.0.0-rev1")
	w.Node.PutPodManifest("old.yaml", podYAML("old", "old="+velum+":4.0.0-rev1"))
	w.Policy.Manage = map[string]bool{"old.yaml": true}
	require.Equal(t, status.StateFailed, w.check().State)
	w.Node.PutPodManifest("old.yaml", nil)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
}

// longLists adds old tags to each list, and counts how many earlier lists are still in memory when the next one is
// requested.
type longLists struct {
	source.Source

	lists int
	old   []weak.Pointer[byte]
	kept  int // earlier lists in memory at a later request
}

func (l *longLists) Tags(ctx context.Context, repository string) ([]string, error) {
	l.observe()
	l.lists++
	names, err := l.Source.Tags(ctx, repository)
	for n := range 1000 {
		names = append(names, fmt.Sprintf("3.0.%d-rev1-build1.1", n))
	}
	l.old = append(l.old, weak.Make(unsafe.StringData(names[len(names)-500])))
	return names, err
}

func (l *longLists) observe() {
	runtime.GC()
	for _, old := range l.old {
		if old.Value() != nil {
			l.kept++
		}
	}
}

// A hundred thousand tags per repository at once take hundreds of megabytes.
func TestTagListsAreDroppedAfterUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const repositories = 4
	var containers []string
	for n := range repositories {
		repository := fmt.Sprintf("registry.suse.com/caasp/v4/r%d", n)
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		w.Registry.Release(repository, "4.0.0", 2, "1.1")
		containers = append(containers, fmt.Sprintf("c%d=%s:4.0.0-rev1", n, repository), fmt.Sprintf("d%d=%s:4.0.0", n, repository))
	}
	w.Node.PutTemplate("many.yaml", podYAML("many", containers...))
	w.restart()
	lists := &longLists{Source: w.agent.Source}
	w.agent.Source = lists

	s := w.check()

	assert.Contains(t, w.Node.PodManifest("many.yaml"), "r3:4.0.0-rev2", s.Reason)
	lists.observe()
	require.Equal(t, repositories, lists.lists)
	assert.Zero(t, lists.kept)
}

// The trimmed list still answers its questions when a tag moved between two readings, even on a line with many higher
// tags.
func TestTrimmedListKeepsTheIntermediateTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ConfirmAfter = 30 * time.Second
		for n := range 20 {
			w.Registry.Release(velum, "5.0.0", n+1, "1.1")
		}
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.restart()
		w.meanwhile(func(n int) {
			if n == 1 {
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
			}
		})
		s := w.check()
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.0-rev1\n", s.Reason)
	})
}

func listFails(cause release.Cause, code int, err error) *release.SourceError {
	return &release.SourceError{Repository: velum, Host: agenttest.Host, Cause: cause, Status: code, Err: err}
}

// failedLists are the ways in which a tag list fails although the host answers all other requests.
func failedLists() map[string]error {
	unasked := listFails(release.CauseUnasked, 0, errors.New("budget of 10 requests an hour is used up until 2026-11-21T12:06:00Z"))
	unasked.Unasked, unasked.Host = true, ""
	torn := listFails(release.CauseAuth, 403, fmt.Errorf("tag list: page 2: 403: %w", release.ErrTornList))
	return map[string]error{
		"500":          listFails(release.CauseServerError, 500, errors.New("500 Internal Server Error")),
		"503":          listFails(release.CauseServerError, 503, errors.New("503 Service Unavailable")),
		"429":          listFails(release.CauseRateLimited, 429, errors.New("429 Too Many Requests")),
		"400":          listFails(release.CauseOther, 400, errors.New("400 Bad Request")),
		"418":          listFails(release.CauseOther, 418, errors.New("418")),
		"timeout":      listFails(release.CauseTimeout, 0, context.DeadlineExceeded),
		"TLS":          listFails(release.CauseTLS, 0, errors.New("x509: unknown authority")),
		"a page":       listFails(release.CauseNoRegistry, 0, errors.New("answers with a page")),
		"too large":    listFails(release.CauseOther, 0, fmt.Errorf("tag list: %w: over 100000 tags", outside.ErrTooLarge)),
		"torn":         listFails(release.CauseOther, 0, errors.New("tag list: body: unexpected EOF")),
		"page 2: 403":  torn,
		"lacks a tag":  listFails(release.CauseOther, 0, errors.New("tag list: has 0 tags, but not 4.0.0-rev1, which is there")),
		"budget spent": unasked,
		"no source":    errors.New("away"),
	}
}

// A failed list is not an answer: the newer tags are unknown, whether an older list is kept or not.
func TestFailedTagListMakesTheNodeStale(t *testing.T) {
	t.Parallel()
	for title, failure := range failedLists() {
		for _, isKept := range []bool{false, true} {
			parallel(t, fmt.Sprintf("%s, kept %v", title, isKept), func(t *testing.T) {
				w := follows(t, policy.Rule{Updates: tags.Revision})
				if !isKept {
					w.Disk.Lose()
					w.restart()
				}
				w.Registry.DownLists(failure)
				w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
				for range 2 { // the next poll keeps it
					s := w.check()
					assert.Equal(t, status.StateStale, s.State, s.Reason)
					require.NotEmpty(t, s.Reasons)
					want, _ := errors.AsType[*release.SourceError](failure)
					if want == nil {
						want = listFails(release.CauseOther, 0, failure)
						want.Host = s.Sources[0].Host
					}
					r := s.Reasons[0]
					assert.Equal(t, status.KindSource, r.Kind)
					assert.Equal(t, want.Cause, r.Cause)
					assert.Equal(t, want.Status, r.HTTPStatus)
					if want.Host != "" {
						assert.Equal(t, want.Host, r.Host)
					}
					assert.Contains(t, r.Text, "tag list: ")
					assert.Contains(t, r.Text, map[bool]string{true: "newer tags known until ", false: "newer tags are unknown"}[isKept])
					require.Len(t, s.Sources, 1)
					assert.Positive(t, s.Sources[0].Failures)
					assert.Equal(t, want.Cause, s.Sources[0].Cause)
					assert.Contains(t, s.Sources[0].Reason, "tag list: ")
					assert.NotNil(t, s.Sources[0].RetryAt)
					assert.Contains(t, fmt.Sprint(image(s, "velum.yaml", "velum").Notes), "newer tags unknown")
				}
				assert.Equal(t, status.StateStale, w.observe().State, "without asking")
				w.Registry.DownLists(nil)
				s := w.check()
				assert.Equal(t, status.StateStaged, s.State, s.Reason)
				assert.Zero(t, s.Sources[0].Failures)
				assert.Empty(t, image(s, "velum.yaml", "velum").Notes)
			})
		}
	}
}

// havers is a source that marks its list as incomplete.
type havers struct {
	source.Source

	known []string
	names []string
	err   error
}

func (h *havers) TagsHaving(_ context.Context, _ string, known []string) ([]string, error) {
	h.known = known
	return h.names, h.err
}

// An incomplete list is used: the tags in it exist.
func TestIncompleteListIsUsedAndReported(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	h := &havers{Source: w.agent.Source, names: []string{"4.0.0-rev2"}, err: listFails(release.CauseOther, 0, errors.New("tag list: lacks 4.0.0-rev1"))}
	w.agent.Source = h
	s := w.check()
	assert.Contains(t, h.known, "4.0.0-rev1")
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	i := image(s, "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	assert.Contains(t, i.Offered.Tag, "4.0.0-rev2")
}

// nullLists returns the lists in a document that JSON would write as null.
func nullLists(v reflect.Value, at string) []string {
	var out []string
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = nullLists(v.Elem(), at)
		}
	case reflect.Slice:
		if v.IsNil() {
			return []string{at}
		}
		for n := range v.Len() {
			out = append(out, nullLists(v.Index(n), fmt.Sprint(at, "[", n, "]"))...)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.IsExported() && (options != "omitempty" || value.Kind() != reflect.Slice || value.Len() > 0) {
				out = append(out, nullLists(value, at+"."+name)...)
			}
		}
	}
	return out
}

func TestEmptyListsOfTheStatusAreNotNull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		assert.Empty(t, nullLists(reflect.ValueOf(w.observe()), "current"))
		w.bad(1, "9.9")
		w.apply()
		s := w.observe()
		require.Equal(t, status.StateFailed, s.State)
		assert.Empty(t, nullLists(reflect.ValueOf(s), "failed"))
		l := start(t, newWorld(t), 0, 0)
		assert.Empty(t, nullLists(reflect.ValueOf(l.Status()), "empty node"))
	})
}
