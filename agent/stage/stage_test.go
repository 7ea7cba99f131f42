// SPDX-License-Identifier: Apache-2.0

package stage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const mib = 1 << 20

var (
	now  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	log  = slog.New(slog.DiscardHandler)
	disk = policy.Filesystem{Path: "/var", Size: 10240 * mib, Free: 500 * mib}
)

// rel returns a release with a number; its pull needs 300 MiB.
func rel(n int) release.Release {
	name := fmt.Sprintf("1.0-rev1-build%d", n)
	return release.Release{
		Repository: "r.io/velum", Tag: "1.0-rev1", Long: name, Digest: digest.FromString(name),
		Build: release.Build{Config: digest.FromString("config of " + name)},
	}
}

func keyOf(r release.Release) string { return release.Key(r.Repository, r.Digest) }

// images is the image store of a node, and CRI's view of it.
type images struct {
	node.ImageStore
	mu       sync.Mutex
	disk     policy.Filesystem
	unknown  error                       // instead of disk
	fails    func(release.Release) error // after the space check
	unlisted int                         // number of queries in which CRI does not list the image
	criFails error
	config   digest.Digest // in CRI; empty: the release's
	pulls    []string      // started ones
	together int
	most     int // largest number of concurrent pulls
	counted  []error
	reported []status.Progress
}

func (i *images) Stage(ctx context.Context, r release.Release, o node.StageOptions) error {
	i.mu.Lock()
	i.pulls = append(i.pulls, r.Long)
	i.mu.Unlock()
	if err := o.CheckSpace(ctx, policy.SpaceNeeded{Compressed: 100 * mib, Unpacked: 200 * mib}); err != nil {
		return err
	}
	i.mu.Lock()
	i.together++
	i.most = max(i.most, i.together)
	i.mu.Unlock()
	<-time.After(time.Minute) // the bubble's time
	i.mu.Lock()
	defer i.mu.Unlock()
	i.together--
	if i.fails != nil {
		return i.fails(r)
	}
	return ctx.Err()
}

func (i *images) Lists(_ context.Context, name string) (digest.Digest, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unlisted--
	if i.config != "" {
		return i.config, true, i.criFails
	}
	return digest.FromString("config of " + name[len("r.io/velum:"):]), i.unlisted < 0, i.criFails
}

func (i *images) Filesystem(context.Context) (policy.Filesystem, error) {
	return i.disk, i.unknown
}

func (i *images) Staged(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counted = append(i.counted, err)
}

func (i *images) report(p status.Progress) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reported = append(i.reported, p)
}

// stager returns a Stager for the node.
func (i *images) stager() *stage.Stager {
	s := &stage.Stager{
		Images: i, CRI: i, Space: &stage.Space{}, Meter: i, Log: log, Signatures: &stage.SignatureChecker{Records: &record.Store{}},
		Progress: &status.Reporter{To: i.report},
	}
	s.Space.Begin(true)
	return s
}

func TestStage(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for title, c := range map[string]struct {
		set     func(*images)
		err     string
		took    time.Duration
		blocked bool
		phase   string // the last one reported
	}{
		"it comes":                {func(*images) {}, "", time.Minute, false, ""},
		"CRI lists it later":      {func(i *images) { i.unlisted = 5 }, "", time.Minute + 2500*time.Millisecond, false, ""},
		"CRI never lists it":      {func(i *images) { i.unlisted = 1000 }, "staged, but CRI does not list it after 10s", time.Minute + 10*time.Second, false, ""},
		"CRI fails":               {func(i *images) { i.criFails = refused }, "cri: connection refused", time.Minute, false, ""},
		"CRI lists another image": {func(i *images) { i.config = "sha256:other" }, "cri lists image id sha256:other instead of sha256:", time.Minute, false, ""},
		"the pull fails":          {func(i *images) { i.fails = func(release.Release) error { return refused } }, "connection refused", time.Minute, false, status.PhaseFailed},
		"there is no space":       {func(i *images) { i.disk.Free = 200 * mib }, "only 209.7 MB are free on /var", 0, true, status.PhaseFailed},
		"a disk that is not seen": {func(i *images) { i.unknown = fmt.Errorf("image filesystem: %w", syscall.ENOENT) }, "", time.Minute, false, ""},
		"the space is not known":  {func(i *images) { i.unknown = refused }, "held: free space unknown: connection refused", time.Minute, false, status.PhaseFailed},
		"it fills the disk":       {func(i *images) { i.fails = func(release.Release) error { return release.ErrNoSpace } }, "only 524.3 MB are free on /var: no space left", time.Minute, true, status.PhaseFailed},
		"it fills a disk of unknown size": {func(i *images) {
			i.fails, i.disk = func(release.Release) error { return release.ErrNoSpace }, policy.Filesystem{}
		}, "no space left", time.Minute, false, status.PhaseFailed},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := &images{disk: disk}
			c.set(i)
			s, began := i.stager(), time.Now()
			err := s.Stage(t.Context(), rel(1))
			assert.Equal(t, c.took, time.Since(began), title)
			assert.Equal(t, c.blocked, len(s.Space.Blocked()) == 1, title)
			require.Len(t, i.counted, 1, title)
			if c.phase != "" {
				assert.Equal(t, status.Progress{Reference: "r.io/velum:1.0-rev1-build1", Phase: c.phase}, i.reported[len(i.reported)-1], title)
			}
			if c.err == "" {
				require.NoError(t, err, title)
				return
			}
			require.ErrorContains(t, err, c.err, title)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		i := &images{disk: disk, unlisted: 1}
		require.ErrorIs(t, i.stager().Stage(ctx, rel(1)), context.Canceled)
		assert.Empty(t, i.counted, "an interruption is no failure")
		assert.Equal(t, status.PhaseInterrupted, i.reported[len(i.reported)-1].Phase)
		_, err := i.stager().AwaitListed(ctx, "r.io/velum:1.0-rev1-build1")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A pull without space next to the running ones follows them.
func TestConcurrentPulls(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		together, most int
		free           int64
	}{
		"as it is set":      {3, 3, 9000},
		"one":               {1, 1, 9000},
		"not set":           {0, 1, 9000},
		"room for one only": {3, 1, 500},
		"room for two":      {3, 2, 700},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := &images{disk: disk}
			i.disk.Free = c.free * mib
			s := i.stager()
			s.Policy.MaxParallelStages = c.together
			errs := s.StageAll(t.Context(), []release.Release{rel(1), rel(2), rel(3), rel(4)})
			assert.Equal(t, make([]error, 4), errs, title)
			assert.Equal(t, c.most, i.most, title)
			assert.Equal(t, make([]error, 4), i.counted, title)
		})
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	i := &images{disk: disk}
	require.ErrorIs(t, i.stager().StageAll(ctx, []release.Release{rel(1)})[0], context.Canceled)
	assert.Empty(t, i.pulls)
}

// A pull that filled the disk needs at least twice its estimate and more than the free space, until it succeeds. A poll
// checks blocked pulls again.
func TestSpaceThatAPullNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := &images{disk: disk, fails: func(release.Release) error { return release.ErrNoSpace }}
		i.disk.Free = 80 * 1024 * mib
		i.disk.Size = 100 * 1024 * mib
		s := i.stager()
		i.fails = func(release.Release) error { i.disk.Free = mib; return release.ErrNoSpace }
		require.Error(t, s.Stage(t.Context(), rel(1)))
		key := keyOf(rel(1))
		assert.Equal(t, map[string]int64{key: 400 * mib}, s.Space.MinSpace(), "twice of what was thought")
		i.fails = func(release.Release) error { return release.ErrNoSpace }
		i.disk.Free = 1000 * mib
		require.Error(t, s.Stage(t.Context(), rel(1)))
		assert.Equal(t, map[string]int64{key: 1100*mib + 1}, s.Space.MinSpace(), "a tenth more than was free")
		s.Space.Begin(false)
		assert.Len(t, s.Space.Blocked(), 1)
		s.Space.Begin(true)
		assert.Empty(t, s.Space.Blocked())

		least := s.Space.MinSpace()
		s = i.stager()
		s.Space.Restore(least) // after a restart
		i.fails = nil
		short := &policy.ShortageError{}
		require.ErrorAs(t, s.Stage(t.Context(), rel(1)), &short)
		i.disk.Free = 1300 * mib
		require.NoError(t, s.Stage(t.Context(), rel(1)))
		assert.Empty(t, s.Space.MinSpace())
		assert.Empty(t, s.Space.Blocked())
	})
	var s stage.Space
	s.SetFailure("a", errors.New("x"))
	s.SetFailure("b", nil)
	require.EqualError(t, s.Failure("a"), "x")
	require.NoError(t, s.Failure("b"))
	s.ClearFailures(true)
	require.NoError(t, s.Failure("a"))
}

// keys verifies releases signed by a trusted key.
type keys struct {
	trusted []string
	err     error // of a verification
	wrong   error // of the keys
	asked   int
}

func (k *keys) Verify(context.Context, release.Release) (string, error) {
	k.asked++
	return k.trusted[0], k.err
}

func (k *keys) Keys(context.Context) ([]string, error) { return slices.Clone(k.trusted), k.wrong }

// disc is the record's disk.
type disc struct{ record.Recorder }

func (disc) Save(context.Context, record.Record) error { return nil }

func checker(k *keys, pol policy.Signatures) *stage.SignatureChecker {
	c := &stage.SignatureChecker{
		Policy:  policy.Policy{Rule: func(string) policy.Rule { return policy.Rule{Signatures: pol} }},
		Records: &record.Store{Recorder: disc{}, Log: log}, Log: log, Now: func() time.Time { return now },
		Jitter: func() float64 { return 0.5 }, Progress: &status.Reporter{},
	}
	if k != nil {
		c.Verifier = k
	}
	return c
}

func TestVerify(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	for title, c := range map[string]struct {
		policy policy.Signatures
		err    error // of the verification
		want   error
		signed string
		record record.Unsigned
	}{
		"signed":               {policy.SignaturesRequire, nil, nil, "ours", record.Unsigned{}},
		"off":                  {policy.SignaturesOff, release.ErrUnsigned, nil, "", record.Unsigned{}},
		"not set":              {"", release.ErrUnsigned, nil, "", record.Unsigned{}},
		"not signed":           {policy.SignaturesRequire, release.ErrUnsigned, release.ErrHeld, "", record.Unsigned{Reason: release.ErrUnsigned.Error()}},
		"not signed, and warn": {policy.SignaturesWarn, release.ErrUnsigned, nil, "", record.Unsigned{Reason: release.ErrUnsigned.Error()}},
		"forged":               {policy.SignaturesRequire, release.ErrForged, release.ErrHeld, "", record.Unsigned{Reason: release.ErrForged.Error(), Forged: true}},
		"not to be had":        {policy.SignaturesRequire, away, away, "", record.Unsigned{Reason: away.Error()}},
	} {
		k := &keys{trusted: []string{"ours"}, err: c.err}
		s := checker(k, c.policy)
		err := s.Verify(t.Context(), rel(1))
		require.True(t, c.want == nil && err == nil || c.want != nil && errors.Is(err, c.want), title)
		assert.Equal(t, c.signed, s.Records.Record.Signed[keyOf(rel(1))], title)
		if c.record.Reason != "" {
			c.record.Keys, c.record.Tries, c.record.RetryAt = "ours", 1, now.Add(5*time.Minute)
		}
		assert.Equal(t, c.record, s.Records.Record.Unsigned[keyOf(rel(1))], title)
		if c.signed != "" {
			require.NoError(t, s.Verify(t.Context(), rel(1)))
			assert.Equal(t, 1, k.asked, "it is verified once")
		}
	}
	require.NoError(t, checker(nil, policy.SignaturesRequire).Verify(t.Context(), rel(1)), "nothing is verified")
	ctx, leave := context.WithCancel(t.Context())
	leave()
	s := checker(&keys{trusted: []string{"ours"}, err: away}, policy.SignaturesRequire)
	require.ErrorIs(t, s.Verify(ctx, rel(1)), away)
	assert.Empty(t, s.Records.Record.Unsigned, "an interruption is no answer")
}

// An unsigned release is verified again: after a back-off, with other keys, or for a person.
func TestVerifyAgain(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		set    func(*keys, *stage.SignatureChecker)
		atOnce bool
		asked  int
	}{
		"too early":          {func(*keys, *stage.SignatureChecker) {}, false, 0},
		"after the back-off": {func(_ *keys, s *stage.SignatureChecker) { s.Now = func() time.Time { return now.Add(5 * time.Minute) } }, false, 1},
		"with a wrong clock": {func(_ *keys, s *stage.SignatureChecker) { s.Now = func() time.Time { return now.Add(-48 * time.Hour) } }, false, 1},
		"for a person":       {func(*keys, *stage.SignatureChecker) {}, true, 1},
		"under other keys":   {func(k *keys, _ *stage.SignatureChecker) { k.trusted = []string{"new"} }, false, 1},
		"the keys are away":  {func(k *keys, _ *stage.SignatureChecker) { k.wrong = errors.New("no such file") }, false, 0},
		"not known any more": {func(_ *keys, s *stage.SignatureChecker) { s.Records.Record.Releases = nil }, true, 0},
		"warn": {func(_ *keys, s *stage.SignatureChecker) {
			s.Policy = policy.Policy{Rule: func(string) policy.Rule { return policy.Rule{Signatures: policy.SignaturesWarn} }}
		}, true, 1},
		"off":                {func(_ *keys, s *stage.SignatureChecker) { s.Policy = policy.Policy{} }, true, 0},
		"without a verifier": {func(_ *keys, s *stage.SignatureChecker) { s.Verifier = nil }, true, 0},
	} {
		k := &keys{trusted: []string{"ours"}, err: release.ErrUnsigned}
		s := checker(k, policy.SignaturesRequire)
		s.Records.Record.Releases.Set(keyOf(rel(1)), rel(1))
		_ = s.Verify(t.Context(), rel(1))
		k.asked, k.err = 0, nil
		c.set(k, s)
		s.VerifyAgain(t.Context(), c.atOnce)
		assert.Equal(t, c.asked, k.asked, title)
		assert.Equal(t, c.asked == 0, len(s.Records.Record.Unsigned) == 1, title)
		assert.Len(t, s.Records.Record.Signed, c.asked, title)
	}
}

// Only the signatures of trusted keys count.
func TestDropRemovedKeys(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		set  func(*keys)
		left int
	}{
		"trusted":       {func(*keys) {}, 1},
		"one of two":    {func(k *keys) { k.trusted = []string{"new", "ours"} }, 1},
		"removed":       {func(k *keys) { k.trusted = []string{"new"} }, 0},
		"without a key": {func(k *keys) { k.trusted = nil }, 0},
		"none is read":  {func(k *keys) { k.wrong = errors.New("no usable public key") }, 0},
	} {
		k := &keys{trusted: []string{"ours"}}
		s := checker(k, policy.SignaturesRequire)
		require.NoError(t, s.Verify(t.Context(), rel(1)))
		c.set(k)
		s.DropRemovedKeys(t.Context())
		assert.Len(t, s.Records.Record.Signed, c.left, title)
	}
	checker(nil, policy.SignaturesRequire).DropRemovedKeys(t.Context())
}
