// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

const velum = "registry.suse.com/caasp/v4/velum"

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// build is the n-th build of velum.
func build(n int) catalog.Release {
	return catalog.Release{
		Tag: fmt.Sprintf("4.0.0-rev1-build1.%d", n), Digest: digest.FromString(fmt.Sprint(n)), Created: noon.Add(time.Duration(n) * time.Hour),
	}
}

func opTag(n int) string { return fmt.Sprintf("op-prod-20261122T%02d0000Z-%012x", n%24, n) }

// drawOps draws ops for a few releases, without conflicts.
func drawOps(t *rapid.T) []catalog.Op {
	var ops []catalog.Op
	for n := range rapid.IntRange(1, 8).Draw(t, "ops") {
		op := catalog.Op{
			Tag: opTag(n), Name: "registry.example.com/catalog", Channel: "prod",
			Do: rapid.SampledFrom([]catalog.Action{
				catalog.ActionAdd, catalog.ActionAdd, catalog.ActionPromote, catalog.ActionWithdraw, catalog.ActionRefresh,
				catalog.ActionFreeze,
			}).Draw(t, "do"),
		}
		if op.Do == catalog.ActionRefresh || op.Do == catalog.ActionFreeze {
			at := noon.Add(time.Duration(n) * time.Hour)
			op.Expires, op.Until = at, at
			ops = append(ops, op)
			continue
		}
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			r := build(rapid.IntRange(1, 4).Draw(t, "build"))
			r.Set = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "set")
			if op.Do == catalog.ActionWithdraw {
				r.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
			}
			if r.Set != "" && rapid.Bool().Draw(t, "has members") {
				members := rapid.SliceOfNDistinct(rapid.IntRange(1, 4), 1, 4, rapid.ID[int]).Draw(t, "members")
				slices.Sort(members)
				op.Sets = map[string][]string{r.Set: {}}
				for _, n := range members {
					op.Sets[r.Set] = append(op.Sets[r.Set], catalog.Member(velum, build(n).Tag))
				}
			}
			op.Changes = append(op.Changes, catalog.Change{
				Image: velum + rapid.SampledFrom([]string{"", "-db"}).Draw(t, "image"), Release: r,
			})
		}
		ops = append(ops, op)
	}
	return ops
}

func isErrorOf(err error, kind catalog.Kind) bool {
	e, ok := err.(*catalog.Error) //nolint:errorlint // the decoders return it unwrapped
	return ok && e.Kind == kind
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
