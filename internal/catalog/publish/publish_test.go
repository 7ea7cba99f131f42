// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func kindOf(err error) publish.Kind {
	if all, ok := errors.AsType[*publish.BatchError](err); ok {
		err = all.Lines[0].Err
	}
	e, _ := errors.AsType[*publish.Error](err)
	if e == nil {
		return ""
	}
	return e.Kind
}

func TestStageFollowsBuildsAndProdPromotions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	r.push("velum", "one", "4.0.0-rev1-build1.1", "4.0.0-rev1")
	r.push("velum", "two", "4.0.0-rev1-build1.2", "4.0.0-rev1")

	got, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.1", "velum:4.0.0-rev1-build1.2")
	require.NoError(t, err)
	assert.EqualValues(t, 2, got.Version)
	assert.True(t, got.Changed)
	again, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.2")
	require.NoError(t, err)
	assert.False(t, again.Changed)
	assert.EqualValues(t, 2, again.Version)
	assert.Equal(t, "listed already", again.Outcomes[0].Note)
	assert.Equal(t, []string{"4.0.0-rev1-build1.2", "4.0.0-rev1-build1.1"}, r.listed(p, "stage", "velum"))
	assert.Empty(t, r.listed(p, "prod", "velum"))

	stage, err := p.Read(t.Context(), "stage")
	require.NoError(t, err)
	prod, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
	chosen, err := selected(t.Context(), p, stage, prod, publish.Selection{Images: []string{"velum:4.0.0-rev1-build1.1"}})
	require.NoError(t, err)
	changes := chosen.Changes
	changes[0].Release.Rollout = &catalog.Rollout{From: noon, Hours: 48}
	promote := request{Channel: "prod", Do: catalog.ActionPromote, Changes: changes}
	dry := promote
	dry.DryRun = true
	got, err = change(t.Context(), p, dry)
	require.NoError(t, err)
	assert.True(t, got.Changed)
	assert.Empty(t, r.listed(p, "prod", "velum"))
	_, err = change(t.Context(), p, promote)
	require.NoError(t, err)
	assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(p, "prod", "velum"))
	got, err = change(t.Context(), p, promote)
	require.NoError(t, err)
	assert.False(t, got.Changed, "the same promotion again")

	prod, err = p.Read(t.Context(), "prod")
	require.NoError(t, err)
	diff, err := p.Diff(t.Context(), stage, prod)
	require.NoError(t, err)
	assert.Equal(t, []publish.Difference{{
		Image: r.host + "/velum", From: "4.0.0-rev1-build1.2", To: "4.0.0-rev1-build1.1", Change: "rebuild",
	}}, diff)

	gone, err := withdrawn(t.Context(), p, prod, publish.Withdrawal{Images: []string{"velum:4.0.0-rev1-build1.1"}, Reason: "bsc#1"})
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionWithdraw, Changes: gone})
	require.NoError(t, err)
	assert.Equal(t, []string{"-4.0.0-rev1-build1.1"}, r.listed(p, "prod", "velum"))
	// The clock stands still, and what was asked for later counts nevertheless.
	changes[0].Release.Rollout = nil
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionPromote, Changes: changes})
	require.Equal(t, publish.KindAgain, kindOf(err), "%v", err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionPromote, Changes: changes, Withdrawn: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(p, "prod", "velum"))

	prod, err = p.Read(t.Context(), "prod")
	require.NoError(t, err)
	log, err := p.Log(t.Context(), prod)
	require.NoError(t, err)
	require.Len(t, log, 4)
	assert.Empty(t, log[0].Changes)
	assert.EqualValues(t, 4, log[3].Version)
	assert.Equal(t, r.host+"/velum", log[3].Changes[0].Image)
	for _, channel := range []string{"stage", "prod"} {
		findings, err := p.Verify(t.Context(), channel, true)
		require.NoError(t, err)
		assert.Empty(t, findings)
	}
}

func TestRefreshSetsWhenAChannelExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	_, err := change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionRefresh, Expires: noon.Add(24 * time.Hour)})
	require.NoError(t, err)
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	got, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	assert.Equal(t, noon.Add(24*time.Hour), *got.Expires, "an add leaves it")
	findings, err := p.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.Equal(t, []publish.Finding{{Channel: "prod", Object: "prod", Problem: "expires at 2026-11-23T12:00:00Z"}}, findings)
}

// Every publisher's add is in the channel when it has ended, whoever published last.
func TestNoAddIsLostAmongPublishers(t *testing.T) {
	t.Parallel()
	const publishers, adds = 8, 4
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	for n := range publishers * adds {
		r.push("velum", fmt.Sprint(n), fmt.Sprintf("4.0.0-rev1-build1.%d", n))
	}
	var wg sync.WaitGroup
	for n := range publishers {
		wg.Go(func() {
			p := r.publisher(func(o *publish.Options) { o.Now = nil; o.Store.Transport = &flaky{} })
			for m := range adds {
				tag := fmt.Sprintf("4.0.0-rev1-build1.%d", n*adds+m)
				_, err := r.add(p, "stage", "velum:"+tag)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	p := r.publisher(func(o *publish.Options) { o.Now = nil })
	assert.Len(t, r.listed(p, "stage", "velum"), publishers*adds)
	findings, err := p.Verify(t.Context(), "stage", false)
	require.NoError(t, err)
	assert.Empty(t, findings)
	v, err := p.Read(t.Context(), "stage")
	require.NoError(t, err)
	log, err := p.Log(t.Context(), v)
	require.NoError(t, err)
	assert.Len(t, log, publishers*adds+1, "each op once")
}

// A publisher that dies at any request leaves a channel that reads well, and an op that the next
// publisher folds, or none.
func TestKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	private, _ := newKey(t)
	for _, isSigned := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for at := int64(1); ; at++ {
				r := newRig(t)
				sign := func(o *publish.Options) {
					if isSigned {
						o.Keys = []*publish.Key{parsedKey(t, private)}
					}
				}
				next := r.publisher(sign)
				r.begin(next, "stage")
				r.push("velum", "one", "4.0.0-rev1-build1.1")
				kill := &killed{at: at, after: after}
				_, err := r.add(r.publisher(func(o *publish.Options) { sign(o); o.Store.Transport = kill }), "stage", "velum:4.0.0-rev1-build1.1")
				isDone := err == nil
				if !isDone {
					require.ErrorIs(t, err, errKilled)
				}
				before := r.listed(next, "stage", "velum") // it can be read at any time
				got, err := change(t.Context(), next, request{Channel: "stage"})
				require.NoError(t, err)
				assert.Empty(t, got.Waiting)
				wasAsked := at > 1 || after // the first request stores the op
				if isDone || wasAsked {
					assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(next, "stage", "velum"), kill.log)
				} else {
					assert.Empty(t, before)
				}
				findings, err := next.Verify(t.Context(), "stage", true)
				require.NoError(t, err)
				assert.Empty(t, findings, kill.log)
				if isDone {
					assert.Greater(t, at, int64(4))
					break
				}
			}
		}
	}
}

// A registry that fails each n-th request, or names no digests, is one to publish to.
func TestRegistriesThatAreNotWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	private, _ := newKey(t)
	for name, transport := range map[string]http.RoundTripper{
		"each second": &every{n: 2}, "each third": &every{n: 3}, "each fourth": &every{n: 4}, "each fifth": &every{n: 5},
		"no digests": bare{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(func(o *publish.Options) { o.Store.Transport, o.Keys = transport, []*publish.Key{parsedKey(t, private)} })
			r.begin(p, "stage")
			r.push("velum", "one", "4.0.0-rev1-build1.1")
			_, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.1")
			require.NoError(t, err)
			findings, err := p.Verify(t.Context(), "stage", true)
			require.NoError(t, err)
			assert.Empty(t, findings)
		})
	}
}
