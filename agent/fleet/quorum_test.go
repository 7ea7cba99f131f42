// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

func TestAgainst(t *testing.T) {
	t.Parallel()
	part := func(name string, local, healthy bool) fleet.Part {
		return fleet.Part{Name: name, Local: local, Healthy: healthy, Seen: map[bool]string{false: "refused"}[healthy]}
	}
	three := func(a, b, c bool) []fleet.Part {
		return []fleet.Part{part("member a", true, a), part("member b", false, b), part("member c", false, c)}
	}
	servers := func(local, other bool) []fleet.Part {
		return []fleet.Part{part("API server a", true, local), part("API server b", false, other)}
	}
	const one, two = "member b: refused", "member b: refused; member c: refused"
	for title, c := range map[string]struct {
		seen      fleet.Observation
		etcd, api string // the reason against the restart of each
	}{
		"nothing is known to be there": {},
		"all are healthy":              {seen: fleet.Observation{Members: three(true, true, true), Servers: servers(true, true)}},
		"one member":                   {seen: fleet.Observation{Members: three(true, true, true)[:1]}},
		"another member is down":       {fleet.Observation{Members: three(true, false, true)}, one, one},
		"two are down":                 {fleet.Observation{Members: three(true, false, false)}, two, two},
		"its own member is down":       {seen: fleet.Observation{Members: three(false, true, true)}},
		"its own API server as well":   {seen: fleet.Observation{Members: three(false, true, true), Servers: servers(false, true)}},
		"its own API server is down":   {fleet.Observation{Members: three(true, true, true), Servers: servers(false, true)}, "API server a of this node: refused", ""},
		"another API server is down":   {fleet.Observation{Servers: servers(true, false)}, "API server b: refused", "API server b: refused"},
		"the members are not known":    {fleet.Observation{Err: errors.New("no answer")}, "etcd: no answer", "etcd: no answer"},
		"not known, with API servers":  {fleet.Observation{Err: errors.New("x"), Servers: servers(true, true)}, "etcd: x", "etcd: x"},
	} {
		assert.Equal(t, c.etcd, fleet.Against(c.seen, false), title)
		assert.Equal(t, c.api, fleet.Against(c.seen, true), title)
	}
}
