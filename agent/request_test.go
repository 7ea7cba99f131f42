// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A restart does not begin after its caller has left; one that has begun continues, and pods of other callers are not
// affected.
func TestNoRestartBeginsAfterItsCallerLeft(t *testing.T) {
	t.Parallel()
	r := newRequest(t.Context(), "apply", nil)
	for _, file := range []string{"begun.yaml", "waits.yaml"} {
		r.approves(status.Outcome{PodManifest: file}, nil)
	}
	assert.True(t, r.Begin("begun.yaml"))
	assert.True(t, r.leave(), "something has begun")
	assert.True(t, r.Begin("begun.yaml"))
	assert.False(t, r.Begin("waits.yaml"))
	assert.True(t, r.Begin("of-another.yaml"))
}

// The caller of a rollback of a set leaves after one of its pods has begun: all of them return.
func TestPodsOfASetBeginTogether(t *testing.T) {
	t.Parallel()
	r := newRequest(t.Context(), "apply", nil)
	r.approves(status.Outcome{PodManifest: "db.yaml"}, func() {}, "db.yaml", "velum.yaml")
	r.approves(status.Outcome{PodManifest: "velum.yaml"}, func() {}, "db.yaml", "velum.yaml")
	r.approves(status.Outcome{PodManifest: "dex.yaml"}, func() {})
	assert.True(t, r.Begin("db.yaml"))
	assert.True(t, r.leave())
	assert.True(t, r.Begin("velum.yaml"))
	assert.False(t, r.Begin("dex.yaml"))
	undo, files := r.takeBack()
	assert.Len(t, undo, 1)
	assert.Equal(t, []string{"dex.yaml"}, files)
}

// People come before the clock: urgent requests first, then the one that was interrupted last. Polls that wait become
// one, which asks all that they would have asked.
func TestOrderOfRequests(t *testing.T) {
	t.Parallel()
	q := &queue{}
	resumed := &Request{verb: "apply", urgent: true, interrupted: true}
	check := &Request{verb: "check"}
	hold, resume := &Request{verb: "hold", urgent: true}, &Request{verb: "resume", urgent: true}
	for _, r := range []*Request{
		{poll: source.PollFailed}, {poll: source.PollNone, interrupted: true}, check, resumed, {poll: source.PollDue}, hold, resume,
	} {
		q.add(r)
	}
	assert.Equal(t, "hold", q.urgentVerb())
	for _, want := range []*Request{hold, resume, resumed, check} {
		assert.Same(t, want, q.next())
	}
	poll := q.next()
	assert.Equal(t, source.PollDue, poll.poll)
	assert.True(t, poll.interrupted)
	assert.Nil(t, q.next())
}

// A check that was interrupted after its poll joins the poll that waits, and asks again what that would have asked.
func TestCheckJoinsThePoll(t *testing.T) {
	t.Parallel()
	q := &queue{}
	check := &Request{verb: "check", poll: source.PollNone}
	assert.Nil(t, q.joinPoll(check))
	waits := &Request{poll: source.PollAll}
	q.add(waits)
	assert.Same(t, waits, q.joinPoll(check))
	assert.Equal(t, source.PollAll, check.poll)
	assert.Nil(t, q.next())
}
