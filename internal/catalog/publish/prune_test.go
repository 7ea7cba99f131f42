// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// at sets the clock of a publisher.
func at(now time.Time) func(*publish.Options) {
	return func(o *publish.Options) { o.Now = func() time.Time { return now } }
}

// Fourteen publishers add builds while three prune, and the registry fails many requests: every add is in the channel and
// once in its log, none of the publishers is told otherwise, and what is old is deleted.
func TestNoAddIsLostBesidePruners(t *testing.T) {
	t.Parallel()
	const publishers, pruners, adds, old = 14, 3, 4, 8
	r := newRig(t)
	early := r.publisher(at(noon.Add(-48 * time.Hour)))
	r.begin(early, "stage")
	for n := range old {
		tag := fmt.Sprintf("1.0-rev1-build1.%d", n)
		r.lists(early, "stage", "", "old:"+tag)
	}
	r.does(r.publisher(at(noon.Add(-25*time.Hour))), "stage", publish.Settle, publish.How{})
	for n := range publishers {
		for m := range adds {
			tag := fmt.Sprintf("4.0.0-rev1-build1.%d", m)
			r.push(fmt.Sprintf("image%d", n), fmt.Sprint(n, m), tag)
		}
	}
	var adding, pruning sync.WaitGroup
	var isDone atomic.Bool
	for n := range publishers {
		adding.Go(func() {
			unreliable := &flaky{}
			for m := range adds {
				// As in CI, each add is a process of its own.
				p := r.publisher(func(o *publish.Options) { o.Store.Transport = unreliable })
				_, err := r.add(p, "stage", fmt.Sprintf("image%d:4.0.0-rev1-build1.%d", n, m))
				assert.NoError(t, err)
			}
		})
	}
	var deleted sync.Map
	for range pruners {
		pruning.Go(func() {
			for isLast := false; !isLast; {
				isLast = isDone.Load()
				gone, err := r.publisher(nil).Prune(t.Context(), "stage", publish.Pruning{Keep: 1})
				assert.NoError(t, err)
				for _, tag := range gone.Deleted {
					deleted.Store(tag, true)
				}
			}
		})
	}
	adding.Wait()
	isDone.Store(true)
	pruning.Wait()
	p := r.publisher(nil)
	for n := range publishers {
		assert.Len(t, r.listed(p, "stage", fmt.Sprintf("image%d", n)), adds, "image %d", n)
	}
	assert.Len(t, r.listed(p, "stage", "old"), old)
	ops, versions := 0, 0
	deleted.Range(func(tag, _ any) bool {
		if strings.HasPrefix(tag.(string), "op-") {
			ops++
		} else {
			versions++
		}
		return true
	})
	assert.Equal(t, old+1, ops, "those of the day before yesterday")
	assert.Equal(t, old, versions, "the newest of them was the channel's yesterday")
	r.isWell(p, "stage")
	log, err := p.Log(t.Context(), r.read(p, "stage"))
	require.NoError(t, err)
	assert.Len(t, log, publishers*adds+old+1)
}

func TestPrune(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, _ := newKey(t)
	p := r.publisher(func(o *publish.Options) { o.Keys = []*publish.Key{parsedKey(t, private)} })
	r.begin(p, "stage", "prod")
	for n := range 5 {
		tag := fmt.Sprintf("4.0.0-rev1-build1.%d", n)
		r.lists(p, "stage", "", "velum:"+tag)
	}
	none, err := p.Prune(t.Context(), "stage", publish.Pruning{Keep: 2})
	require.NoError(t, err)
	assert.Empty(t, none.Deleted, "all of it is of today")
	p = r.publisher(func(o *publish.Options) {
		at(noon.Add(25 * time.Hour))(o)
		o.Keys = []*publish.Key{parsedKey(t, private)}
	})
	would, err := p.Prune(t.Context(), "stage", publish.Pruning{Keep: 2, DryRun: true})
	require.NoError(t, err)
	assert.Len(t, would.Deleted, 6+4+4, "the ops, four versions, their signatures")
	gone, err := p.Prune(t.Context(), "stage", publish.Pruning{Keep: 2})
	require.NoError(t, err)
	assert.Equal(t, would, gone)
	r.isWell(p, "stage")
	r.push("velum", "last", "4.0.0-rev1-build1.9")
	got, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.9")
	require.NoError(t, err)
	assert.EqualValues(t, 7, got.Version)
	assert.Len(t, r.listed(p, "stage", "velum"), 6)
	v := r.read(p, "stage")
	assert.Less(t, v.Ops.Size, int64(150), "pruned ops are not in the list")
}

// An op of the day before yesterday that was folded just now: who has begun before may still publish a version without it.
func TestOpThatWasJustFoldedStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(at(noon.Add(-48*time.Hour))), "stage")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	kill := &killed{at: 2}
	_, err := r.add(r.publisher(func(o *publish.Options) {
		at(noon.Add(-48 * time.Hour))(o)
		o.Store.Transport = kill
	}), "stage", "velum:4.0.0-rev1-build1.1")
	require.ErrorIs(t, err, errKilled)
	p := r.publisher(nil)
	r.does(p, "stage", publish.Settle, publish.How{})
	require.Len(t, r.listed(p, "stage", "velum"), 1)
	gone, err := p.Prune(t.Context(), "stage", publish.Pruning{Keep: 1})
	require.NoError(t, err)
	assert.Len(t, gone.Deleted, 1, "the op of the channel's first version: %s", gone)
	late := r.publisher(at(noon.Add(25 * time.Hour)))
	gone, err = late.Prune(t.Context(), "stage", publish.Pruning{Keep: 1})
	require.NoError(t, err)
	assert.Len(t, gone.Deleted, 2, "the op, and the version before: %s", gone)
}

// What was yesterday's version cannot be read any more: then nobody knows what is settled.
func TestNothingIsPrunedWhereThePastIsMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for n := range 3 {
		p := r.publisher(at(noon.Add(time.Duration(n-3) * 24 * time.Hour)))
		if n == 0 {
			r.begin(p, "stage")
		} else {
			r.does(p, "stage", publish.Refresh(time.Time{}), publish.How{})
		}
	}
	r.does(r.publisher(nil), "stage", publish.Refresh(time.Time{}), publish.How{})
	would, err := r.publisher(nil).Prune(t.Context(), "stage", publish.Pruning{Keep: 1, DryRun: true})
	require.NoError(t, err)
	assert.Len(t, would.Deleted, 5, "%s", would)
	r.remove("stage-v00000003")
	would, err = r.publisher(nil).Prune(t.Context(), "stage", publish.Pruning{Keep: 1, DryRun: true})
	require.NoError(t, err)
	assert.Empty(t, would.Deleted)
}

// Somebody folds an op and deletes it before its publisher has seen it in the list of tags.
func TestOpThatWasFoldedAndDeletedIsDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	r.push("velum", "two", "4.0.0-rev1-build1.2")
	got, err := r.add(r.publisher(func(o *publish.Options) {
		o.Store.Transport = around{op: sync.OnceFunc(func() {
			other := r.publisher(nil)
			r.does(other, "stage", publish.Settle, publish.How{})
			r.removeOps("stage")
			_, err := r.add(other, "stage", "velum:4.0.0-rev1-build1.2")
			require.NoError(t, err)
		})}
	}), "stage", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	assert.True(t, got.Changed)
	assert.EqualValues(t, 3, got.Version)
	assert.Len(t, r.listed(r.publisher(nil), "stage", "velum"), 2)
}

// A publisher's op is deleted, and the version that has it is replaced by one that a slow publisher has begun before.
func TestOpThatWasDeletedAndLostIsStoredAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	r.push("velum", "two", "4.0.0-rev1-build1.2")
	waits, goes, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, err := r.add(r.publisher(func(o *publish.Options) {
			o.Store.Transport = around{op: func() {}, before: map[string]func(){"stage": sync.OnceFunc(func() { close(waits); <-goes })}}
		}), "stage", "velum:4.0.0-rev1-build1.1")
		assert.NoError(t, err)
	}()
	<-waits
	_, err := r.add(r.publisher(func(o *publish.Options) {
		o.Store.Transport = around{op: func() {}, after: map[string]func(){"stage": sync.OnceFunc(func() {
			r.removeOps("stage")
			close(goes)
			<-ended
		})}}
	}), "stage", "velum:4.0.0-rev1-build1.2")
	require.NoError(t, err)
	assert.Len(t, r.listed(r.publisher(nil), "stage", "velum"), 2)
}

// What stays has a reason, an age keeps more than the number, and signatures without their version are found.
func TestPruneByAge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, _ := newKey(t)
	const days = 10
	on := func(day int) *publish.Publisher {
		return r.publisher(func(o *publish.Options) {
			at(noon.Add(time.Duration(day) * 24 * time.Hour))(o)
			o.Keys = []*publish.Key{parsedKey(t, private)}
		})
	}
	r.begin(on(0), "stage")
	for day := 1; day < days; day++ {
		r.does(on(day), "stage", publish.Refresh(time.Time{}), publish.How{})
	}
	r.remove("stage-v00000002")
	tags := func(o publish.Pruning) publish.Pruned {
		t.Helper()
		o.DryRun = true
		got, err := on(days).Prune(t.Context(), "stage", o)
		require.NoError(t, err)
		return got
	}
	missing := tags(publish.Pruning{Keep: 1, Older: 9 * 24 * time.Hour})
	assert.Len(t, missing.Deleted, 1, "the version of that day is gone, but for its signature: %v", missing)
	got := tags(publish.Pruning{Keep: 4, Older: 3 * 24 * time.Hour})
	var versions, orphans int
	for _, tag := range got.Deleted {
		if strings.HasPrefix(tag, "stage-v") {
			versions++
		}
		if strings.HasSuffix(tag, ".sig") {
			orphans++
		}
	}
	assert.Equal(t, 5, versions, "1 and 3 to 6: %v", got.Deleted)
	assert.Equal(t, versions+1, orphans, "with that of version 2")
	assert.Equal(t, []publish.KeptTags{
		{Count: 4, Why: "the newest versions"}, {Count: 2, Why: "ops that the channel does not have for 72h0m0s yet"},
	}, got.Kept)
}
