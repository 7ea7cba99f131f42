// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// reverts has prod reverted, and returns what it says of releases that it does not bring back.
func (r *rig) reverts(p *publish.Publisher, version uint64) (got publish.Result, stays []string) {
	r.t.Helper()
	got, err := p.Change(r.t.Context(), "prod", publish.Revert(version, ""), publish.How{})
	require.NoError(r.t, err)
	for _, o := range got.Outcomes {
		if o.Skipped {
			stays = append(stays, o.Tag+" "+o.Note)
		}
	}
	return got, stays
}

// What came since is withdrawn, with what to run instead. What was withdrawn stays so, and is named. Repeated, it does
// nothing, and goes back no further.
func TestRevert(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	_, err := r.addSet(p, "prod", "", "velum:"+build(1), "etcd:"+build(1))
	require.NoError(t, err)
	r.gone(p, "prod", "etcd:"+build(1))
	_, err = r.addSet(p, "prod", "", "velum:"+build(2))
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionRefresh})
	require.NoError(t, err)

	got, stays := r.reverts(p, 2)
	assert.EqualValues(t, 6, got.Version, "one version")
	assert.Equal(t, []string{build(1) + " not brought back: withdrawn: bsc#1"}, stays)
	assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
	assert.Equal(t, []string{"-" + build(1)}, r.listed(p, "prod", "etcd"))
	gone := r.release(p, "prod", "velum:"+build(2)).Withdrawn
	assert.Equal(t, build(1), gone.To)
	assert.Equal(t, "reverted to version 2", gone.Reason)
	for _, version := range []uint64{2, 0, 0} {
		got, _ = r.reverts(p, version)
		assert.False(t, got.Changed, "once more")
	}
	assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
	_, err = p.Change(t.Context(), "prod", publish.Revert(99, ""), publish.How{})
	assert.Equal(t, publish.KindImage, kindOf(err), "%v", err)
}

// The two steps of the page "When something is wrong" come before a revert: it undoes the release, and not that step.
func TestRevertAfterThePagesSteps(t *testing.T) {
	t.Parallel()
	for title, step := range map[string]func(r *rig, p *publish.Publisher) error{
		"paused": func(r *rig, p *publish.Publisher) error {
			_, err := p.Change(r.t.Context(), "prod", publish.Roll(publish.Selection{}, publish.Steer{Pause: true}), publish.How{})
			return err
		},
		"withdrawn": func(r *rig, p *publish.Publisher) error {
			return r.withdraw(p, "prod", publish.Withdrawal{Images: []string{"velum:" + build(2)}})
		},
		"frozen": func(r *rig, p *publish.Publisher) error {
			_, err := p.Change(r.t.Context(), "prod", publish.Freeze(noon.Add(time.Hour)), publish.How{})
			return err
		},
		"none of them": func(*rig, *publish.Publisher) error { return nil },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "stage", "prod")
			_, err := r.addSet(p, "stage", "", "velum:"+build(1))
			require.NoError(t, err)
			_, err = r.promote(p, publish.Selection{All: true}, nil)
			require.NoError(t, err)
			_, err = r.addSet(p, "stage", "", "velum:"+build(2))
			require.NoError(t, err)
			_, err = r.promote(p, publish.Selection{All: true}, &catalog.Rollout{From: noon, Hours: 48})
			require.NoError(t, err)
			require.NoError(t, step(r, p))
			for range 3 {
				_, _ = r.reverts(p, 0)
				assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
			}
			v, err := p.Read(t.Context(), "prod")
			require.NoError(t, err)
			assert.Equal(t, title == "frozen", !v.Frozen.IsZero())
		})
	}
}

// What newer releases have pushed off its page comes back, and a release whose set changed has the earlier one again; a
// rollout that is paused stays so.
func TestRevertBringsBackWhatFellOffAndEarlierSets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	_, err := r.addSet(p, "prod", "a", "velum:"+build(1), "etcd:"+build(1))
	require.NoError(t, err)
	var newer []string
	for n := range catalog.Kept {
		newer = append(newer, "velum:"+build(n+2))
	}
	_, err = r.addSet(p, "prod", "", newer...)
	require.NoError(t, err)
	_, err = r.addSet(p, "prod", "b", "etcd:"+build(1), "velum:"+build(2))
	require.NoError(t, err)
	require.Nil(t, r.release(p, "prod", "velum:"+build(1)))
	_, _ = r.reverts(p, 2)
	is := r.release(p, "prod", "velum:"+build(1))
	require.NotNil(t, is)
	assert.Nil(t, is.Withdrawn)
	assert.Equal(t, "a", is.Set)
	is = r.release(p, "prod", "etcd:"+build(1))
	assert.Equal(t, "a", is.Set)
	assert.Equal(t, r.members("etcd:"+build(1), "velum:"+build(1)), is.Members)
	got, _ := r.reverts(p, 2)
	assert.False(t, got.Changed)
}
