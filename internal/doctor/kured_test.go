// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckKured(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	assert.Empty(t, n.checkKured(t.Context()), "it is not configured, and not asked")
	for title, c := range map[string]struct {
		nodes           []string
		err             error
		verdict, remedy string
	}{
		"nobody":        {nil, nil, OK, ""},
		"a node":        {[]string{"node-2"}, nil, Advice, "kubectl -n kube-system logs daemonset/kured"},
		"no permission": {nil, errors.New("403"), Fail, "get daemonsets.apps kured in namespace kube-system"},
	} {
		n.Apply.Kured = "kube-system/kured"
		n.Reboots = func(context.Context) ([]string, error) { return c.nodes, c.err }
		all := n.checkKured(t.Context())
		require.Len(t, all, 1, title)
		assert.Equal(t, c.verdict, all[0].Verdict, title)
		assert.Contains(t, all[0].Remedy, c.remedy, title)
	}
}
