// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// The ports of an agent, with points around their calls. What is not here has none.
type (
	killSource struct {
		source.Source
		points *points
	}
	killImages struct {
		node.Images
		points *points
	}
	killPods struct {
		node.Pods
		points *points
	}
	killFiles struct {
		node.PodFiles
		points *points
	}
	killAnnouncer struct {
		agent.Announcer
		points *points
	}
	killRecorder struct {
		record.Recorder
		points *points
	}
	killTable struct {
		ownhost.Store
		points *points
	}
	killReadiness struct {
		apply.Readiness
		points *points
	}
	killFleetLock struct {
		fleet.Locker
		points *points
	}
	killInhibitor struct {
		apply.Inhibitor
		points *points
	}
)

func (k killSource) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer k.points.asked("resolve")
	return k.Source.Resolve(ctx, ref)
}

func (k killImages) Stage(ctx context.Context, r release.Release, t node.StageOptions) error {
	return k.points.around("stage", func() error { return k.Images.Stage(ctx, r, t) })
}

func (k killImages) Pins(ctx context.Context, want []release.Pin) error {
	return k.points.around("pins", func() error { return k.Images.Pins(ctx, want) })
}

func (k killImages) Prune(ctx context.Context, gone []node.HeldImage) error {
	return k.points.around("prune", func() error { return k.Images.Prune(ctx, gone) })
}

func (k killImages) Name(ctx context.Context, p release.Pin) error {
	return k.points.around("name", func() error { return k.Images.Name(ctx, p) })
}

func (k killImages) Restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	return k.points.around("restore", func() error { return k.Images.Restore(ctx, was, d) })
}

func (k killPods) Containers(ctx context.Context) (static []node.Container, used []digest.Digest, err error) {
	defer k.points.asked("containers")
	return k.Pods.Containers(ctx)
}

func (k killPods) Lists(ctx context.Context, name string) (digest.Digest, bool, error) {
	defer k.points.asked("lists")
	return k.Pods.Lists(ctx, name)
}

func (k killPods) Stop(ctx context.Context, containerID string, grace time.Duration) error {
	return k.points.around("stop", func() error { return k.Pods.Stop(ctx, containerID, grace) })
}

func (k killPods) Clear(ctx context.Context, sandboxID string) error {
	return k.points.around("clear", func() error { return k.Pods.Clear(ctx, sandboxID) })
}

func (k killPods) SandboxReady(ctx context.Context, sandboxID string) (bool, error) {
	defer k.points.asked("sandbox ready")
	return k.Pods.SandboxReady(ctx, sandboxID)
}

func (k killPods) Pull(ctx context.Context, ref release.Reference) (id digest.Digest, err error) {
	err = k.points.around("pull", func() error {
		id, err = k.Pods.Pull(ctx, ref)
		return err
	})
	return id, err
}

func (k killFiles) Write(ctx context.Context, was node.PodFile, data []byte) error {
	return k.points.around("write", func() error { return k.PodFiles.Write(ctx, was, data) })
}

func (k killFiles) Remove(ctx context.Context, was node.PodFile) error {
	return k.points.around("remove", func() error { return k.PodFiles.Remove(ctx, was) })
}

func (k killFiles) Keep(ctx context.Context, name string, data []byte) error {
	return k.points.around("keep", func() error { return k.PodFiles.Keep(ctx, name, data) })
}

func (k killFiles) SetAside(ctx context.Context, was node.PodFile) error {
	return k.points.around("set aside", func() error { return k.PodFiles.SetAside(ctx, was) })
}

func (k killFiles) PutBack(ctx context.Context) (names []string, err error) {
	err = k.points.around("put back", func() error {
		names, err = k.PodFiles.PutBack(ctx)
		return err
	})
	return names, err
}

func (k killAnnouncer) Announce(ctx context.Context, a status.Announcement) error {
	return k.points.around("announce", func() error { return k.Announcer.Announce(ctx, a) })
}

func (k killRecorder) Save(ctx context.Context, r record.Record) error {
	k.points.turn(r)
	return k.points.around("save", func() error { return k.Recorder.Save(ctx, r) })
}

func (k killRecorder) Publish(ctx context.Context, s status.Status) error {
	return k.points.around("publish", func() error { return k.Recorder.Publish(ctx, s) })
}

func (k killTable) Save(ctx context.Context, t ownhost.Table) error {
	return k.points.around("table", func() error { return k.Store.Save(ctx, t) })
}

func (k killReadiness) Unready(ctx context.Context, pod apply.PodReadiness) (apply.Verdict, error) {
	defer k.points.asked("ready")
	return k.Readiness.Unready(ctx, pod)
}

func (k killInhibitor) Inhibit(ctx context.Context, why string) (release func(), err error) {
	err = k.points.around("inhibit", func() error {
		release, err = k.Inhibitor.Inhibit(ctx, why)
		return err
	})
	return release, err
}

func (k killFleetLock) Lock(ctx context.Context) (answer fleet.LockAnswer, err error) {
	err = k.points.around("lock", func() error {
		answer, err = k.Locker.Lock(ctx)
		return err
	})
	return answer, err
}

func (k killFleetLock) Unlock(ctx context.Context) error {
	return k.points.around("unlock", func() error { return k.Locker.Unlock(ctx) })
}
